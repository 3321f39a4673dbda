"""Updates on disk: kept, damaged, of something else; and lines that are appended."""

import errno
import os

import pytest

from hopf_jax.runtime import AppendedLines, HopfWarning
from hopf_jax.serving import Journal, Live, identify, messages
from hopf_jax.serving.live import RefusedError
from tests.serving.test_service import CHANGE

LABEL = {"labels": [{"node": "Bob", "label": 2}, {"node": "node 12", "label": None}]}


def lines(path, *more):
    with AppendedLines(path) as file:
        for line in more:
            file.append(line)
        return file.found


def test_lines_are_found_again(tmp_path):
    path = tmp_path / "lines"
    assert lines(path, b"one", b"", "ü two".encode()) == []
    assert lines(path, b"three") == [b"one", b"", "ü two".encode()]
    assert len(lines(path)) == 4


def test_a_damaged_last_line_is_set_aside(tmp_path):
    path = tmp_path / "lines"
    lines(path, b"one", b"two")
    whole = path.read_bytes()
    half = len(whole) // 2
    flipped = whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:]
    damaged = [whole[:length] for length in range(half + 1, len(whole))] + [flipped]
    for i, content in enumerate(damaged):
        path.write_bytes(content)
        with pytest.warns(HopfWarning, match=f"is put into .*damaged-{i}"):
            assert lines(path) == [b"one"]
        assert path.read_bytes() == whole[:half]
        assert path.with_name(f"lines.damaged-{i}").read_bytes() == content[half:]
        assert lines(path, b"two") == [b"one"] and path.read_bytes() == whole


def test_damage_before_the_end_is_no_crash(tmp_path):
    path = tmp_path / "lines"
    lines(path, b"one", b"two", b"three")
    path.write_bytes(path.read_bytes().replace(b"two", b"tow"))
    with pytest.raises(ValueError, match="line 2: its checksum is wrong"):
        lines(path)


def test_what_cannot_be_written_is_not_kept(tmp_path, monkeypatch):
    path, write = tmp_path / "lines", os.pwrite
    with AppendedLines(path) as file:
        file.append(b"one")

        def full(handle, content, at):
            write(handle, content[:5], at)
            raise OSError(errno.ENOSPC, "full")

        for broken in (full, lambda h, c, at: write(h, c[:5], at)):
            monkeypatch.setattr(os, "pwrite", broken)
            with pytest.raises(OSError):
                file.append(b"two")
        monkeypatch.setattr(os, "pwrite", write)
        file.append(b"three")
    assert lines(path) == [b"one", b"three"]
    with pytest.raises(ValueError, match="is a folder"):
        AppendedLines(tmp_path)


def ask(live):
    names = [name for name in live.view.names.listed if isinstance(name, str)]
    return live.view.predict(names, True), live.view.explain("Ann", None, 5)


def test_a_restarted_service_gives_the_same_answers(result, tmp_path):
    def start():
        owner = identify(result, result.graph)
        journal = Journal(tmp_path / "state", owner)
        return Live(result, result.graph, journal), journal

    live, journal = start()
    first = ask(live)
    for change in (CHANGE, LABEL):
        done = live.update(messages.UpdateRequest.model_validate(change))
        assert done["stored"] is True
    with pytest.raises(ValueError, match="in use by process"):
        start()
    asked = ask(live)
    assert asked != first and asked[0]["version"] == 2
    journal.close()
    again, journal = start()
    assert ask(again) == asked
    # An update that is refused is not kept, and neither is one that cannot be written.
    with pytest.raises(RefusedError, match="is not a node"):
        again.update(messages.UpdateRequest(drop=["nobody"]))
    journal.close()
    third, journal = start()
    assert ask(third) == asked
    journal.close()


@pytest.mark.parametrize("update", [b"{}}", b'{"drop": ["nobody"]}'])
def test_an_update_that_cannot_be_made_again_is_named(result, tmp_path, update):
    journal = Journal(tmp_path, "owner")
    journal.append(update)
    journal.close()
    journal = Journal(tmp_path, "owner")
    with pytest.raises(ValueError, match="Update 1 of the journal cannot be made"):
        Live(result, result.graph, journal)
    journal.close()


def test_an_update_that_is_not_kept_is_not_made(result, tmp_path, monkeypatch):
    journal = Journal(tmp_path, "owner")
    live = Live(result, result.graph, journal)
    before = live.view

    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="full"):
        live.update(messages.UpdateRequest.model_validate(LABEL))
    assert live.view is before
    journal.close()


def test_updates_of_something_else_are_refused(result, several, tmp_path):
    Journal(tmp_path, identify(result, result.graph)).close()
    split = result.graph.with_split(train=["Ann"])
    owners = {
        identify(result, result.graph),
        identify(result, split),
        identify(several, several.graph),
        identify(several, result.graph),
    }
    assert len(owners) == 4
    with pytest.raises(ValueError, match="another model or another graph"):
        Journal(tmp_path, identify(result, split))
    Journal(tmp_path, identify(result, result.graph)).close()  # It was let go.
