"""Lines of JSON and TensorBoard files."""

import datetime
import json
import sys

import pytest

from hopf_jax import Config, fit
from hopf_jax.runtime.callbacks import JsonLines, TensorBoard
from tests import graphs

RECORD = {
    **{"iteration": 1, "epoch": 3, "learning_rate": 0.01, "seconds": 0.5},
    **{"train_loss": 1.5, "validation_loss": 1.25, "validation_micro_f1": 0.5},
}


def test_one_line_per_epoch_and_lines_of_the_result(tmp_path):
    config = Config(num_hops=1, hidden_size=3, num_iterations=2, max_epochs=2)
    with JsonLines(tmp_path / "deep" / "log", "my run") as lines:
        result = fit(graphs.tiny(), "ss-ica", config, callbacks=[lines])
        lines.write_result(result)
    read = [json.loads(x) for x in (tmp_path / "deep" / "log").read_text().splitlines()]
    assert [line["event"] for line in read] == ["epoch"] * 4 + [
        *("iteration", "iteration", "finished")
    ]
    for line, record in zip(read[:4], result.history, strict=True):
        assert {k: v for k, v in line.items() if k in record} == record
    for line in read:
        assert (line["run"], line["process"]) == ("my run", 0)
        assert datetime.datetime.fromisoformat(line["time"]).tzinfo is not None
    assert read[-1]["scores"] == result.scores and read[-1]["epochs"] == 4
    assert read[-2]["scores"] == result.iterations[-1]["scores"]


def test_lines_are_appended_to_a_file_or_stdout(tmp_path, capsys):
    path = tmp_path / "log"
    path.write_text("{}\n")
    with JsonLines(path) as lines:
        lines(RECORD)
        assert len(path.read_text().splitlines()) == 2
    with JsonLines("-", "r") as lines:
        lines(RECORD)
    assert json.loads(capsys.readouterr().out)["validation_micro_f1"] == 0.5
    with pytest.raises(ValueError, match="Give a local file, or - for stdout"):
        JsonLines("gs://bucket/log")


def events(folder):
    from tensorboardX.proto import event_pb2

    found = []
    for path in sorted(folder.iterdir()):
        data, at = path.read_bytes(), 0
        while at < len(data):
            # A record: its length, a checksum, itself, a checksum.
            size = int.from_bytes(data[at : at + 8], "little")
            event = event_pb2.Event.FromString(data[at + 12 : at + 12 + size])
            found.append(event)
            at += size + 16
    return found


def test_tensorboard_has_one_run_per_iteration_with_epochs_as_steps(tmp_path):
    with TensorBoard(tmp_path) as board:
        board(RECORD)
        board(RECORD | {"iteration": 2, "epoch": 1, "train_loss": 4.0})
    first, second = (events(tmp_path / f"iteration-{t}") for t in (1, 2))
    values = {v.tag: v.simple_value for e in first for v in e.summary.value}
    assert values == {
        **{"learning_rate": pytest.approx(0.01), "seconds": 0.5},
        **{"loss/train": 1.5, "loss/validation": 1.25, "micro_f1/validation": 0.5},
    }
    assert {e.step for e in first if e.summary.value} == {3}
    assert {e.step for e in second if e.summary.value} == {1}
    # Epochs that are repeated after a restart replace earlier ones.
    starts = [e.step for e in first if e.session_log.status == e.session_log.START]
    assert starts == [3]


def test_without_its_package_tensorboard_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ValueError, match="pip install"):
        TensorBoard(tmp_path)
