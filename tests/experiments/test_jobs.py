"""experiments.job, faults and launch, and what experiments/jobs gives to clusters."""

import dataclasses
import json
import os
import pathlib
import random
import re
import shlex
import signal
import stat
import subprocess
import sys
import time

import pytest
import yaml
from etils import epath

import hopf_jax
from experiments import faults, job, launch, reproduce
from experiments.common import arguments, cells, output
from hopf_jax.datasets.registry import DownloadError
from hopf_jax.runtime import publishing
from tests import buckets, graphs

JOBS = output.ROOT / "experiments" / "jobs"
SCRIPTS = sorted(JOBS.glob("*.sh"))


# The command


def test_a_job_writes_its_files_and_is_idempotent(tiny, tmp_path, monkeypatch, capsys):
    command = ["--dataset", "planted", "--model", "ss-ica", "--max-epochs", "2"]
    command += ["--workdir", str(tmp_path), "--log-json", str(tmp_path / "log")]
    command += ["--tensorboard", str(tmp_path / "board")]
    monkeypatch.setattr(output, "commit", lambda: "abc")
    killed = subprocess.Popen(["true"])
    killed.wait()
    left = f".result.npz.{publishing._host()}.{killed.pid}.1.01234567.part"
    (tmp_path / left).write_text("left by one that was killed")
    assert job.main(command) == 0
    files = [tmp_path / "result.npz", tmp_path / "scores.json"]
    first = [path.read_bytes() for path in files]
    scores = json.loads(first[1])
    result = hopf_jax.load(files[0])
    assert scores["scores"] == result.scores and scores["run"].startswith("planted/ss")
    assert not list(tmp_path.glob(".*"))
    assert job.main(command) == 0
    assert [path.read_bytes() for path in files] == first
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    events = [line["event"] for line in lines]
    assert events.count("epoch") == scores["epochs"]  # The second trained nothing.
    assert events.count("started") == events.count("finished") == 2
    assert (tmp_path / "board" / scores["run"] / "iteration-1").is_dir()
    # The workdir of another job is a mistake.
    with pytest.raises(SystemExit) as stopped:
        job.main([*command, "--seed", "1"])
    assert stopped.value.code == 2
    assert "holds another run: seed 0 is 1, but 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["--dataset", "cora"], "--workdir"),
        (["--dataset", "cora,pubmed", "--workdir", "x"], "give one"),
        (["--dataset", "cora", "--model", "gcn,wl", "--workdir", "x"], "give one"),
        (["--dataset", "cora", "--fold", "1,2", "--workdir", "x"], "give one"),
        (["--dataset", "cora", "--workdir", "s3://x"], "neither a local path nor gs"),
        (["--dataset", "cora", "--workdir", "x", "--log-json", "gs://b/l"], "local"),
        (["--dataset", "cora", "--workdir", "x", "--devices", "2"], "jax sees 1"),
    ],
)
def test_a_job_names_mistakes_and_exits_with_2(tiny, command, said, capsys):
    with pytest.raises(SystemExit) as stopped:
        job.main(command)
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


def test_killed_at_random_a_job_ends_with_the_same_bytes(tmp_path, capsys):
    command = ["--kills", "2", "--dataset", "planted", "--model", "ss-ica", "--cache"]
    command += ["--damage", "--max-epochs", "40", "--workdir", str(tmp_path)]
    assert faults.main(command) == 0
    found = output.read_json(tmp_path / "faults" / "faults.json")
    assert found["went_back"] == 0
    assert found["same"] == {"result.npz": True, "scores.json": True}
    assert found["by_signal"] == {"SIGKILL": 1, "SIGTERM": 1}
    assert found["starts"] == 3 and found["epochs"] <= found["epochs_run"]
    # No file of the cache, nor anything half-written, passes for a result.
    (tmp_path / "faults" / "killed" / "work" / ".result.npz.12").touch()
    partial = tmp_path / "faults" / "killed" / "work" / "checkpoints" / "9.orbax-tmp"
    partial.mkdir()
    left = faults.left_over(tmp_path / "faults" / "killed" / "work")
    assert left == [".result.npz.12", "checkpoints/9.orbax-tmp"]


@pytest.mark.parametrize(
    "kind", ["folder added", "byte flipped", "file removed", "contents removed"]
)
def test_damage_leaves_one_checkpoint_intact(kind, tmp_path, monkeypatch):
    made = tmp_path / "work"
    config = hopf_jax.Config(num_hops=1, hidden_size=2, max_epochs=3, folds=0)
    graph = hopf_jax.split_graph(graphs.tiny())
    hopf_jax.fit(graph, "gcn", config, workdir=made, progress=False)
    before = faults._intact(made, set())
    assert len(before) == 2
    rng, damaged = random.Random(0), set()
    rng.choice = lambda some: kind if kind in some else some[-1]
    assert faults.damage(made, damaged, rng) == kind
    kept = faults._intact(made, damaged)
    assert len(kept) == (2 if kind == "folder added" else 1) and kept.items() <= (
        before.items()
    )
    # The only one that is left is never damaged.
    for _ in range(3):
        faults.damage(made, damaged, random.Random(1))
    assert faults._intact(made, damaged)


@graphs.needs("pubmed")
@pytest.mark.slow
def test_50_kills_on_pubmed_with_damage_in_between(tmp_path, capsys):
    command = ["--kills", "50", "--dataset", "pubmed", "--damage", "--cache"]
    assert (
        faults.main([*command, "--max-epochs", "60", "--workdir", str(tmp_path)]) == 0
    )
    found = output.read_json(tmp_path / "faults" / "faults.json")
    assert found["kills"] == 50 and found["by_signal"] == {"SIGKILL": 25, "SIGTERM": 25}
    assert len(found["damage"]) == 4 and found["went_back"] == 0
    assert all(found["same"].values()) and found["left_over"] == []
    assert "Same bytes: {'result.npz': True" in capsys.readouterr().out


def full(*given, **more):
    raise OSError(28, "No space left on device")


def refused_by_tensorstore(*given, **more):
    raise ValueError("RESOURCE_EXHAUSTED: Error writing: No space left on device")


def offline(*given, **more):
    raise DownloadError("cannot be reached")


@pytest.mark.parametrize(
    ("place", "fails"),
    [
        ("orbax.checkpoint.CheckpointManager.save", full),
        ("orbax.checkpoint.CheckpointManager.save", refused_by_tensorstore),
        ("hopf_jax.results.serialization.write_atomically", full),
        ("experiments.common.output.write_atomically", full),
        ("experiments.job.load_dataset", offline),
    ],
)
def test_what_may_pass_is_75(place, fails, tiny, tmp_path, monkeypatch, capsys):
    command = ["--dataset", "planted", "--model", "ss-ica", "--max-epochs", "2"]
    command += ["--workdir", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(place, fails)
        assert job.main(command) == os.EX_TEMPFAIL == 75
    assert "try again: " in capsys.readouterr().err
    assert job.main(command) == 0  # Once there is space, or a network.


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a file system of its own")
def test_a_disk_that_is_full(tmp_path):
    workdir = tmp_path / "work"
    workdir.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", workdir]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("nothing can be mounted here")
    command = [sys.executable, "-m", "experiments.job", "--dataset", "planted"]
    command += ["--model", "gcn", "--max-epochs", "2", "--workdir", workdir]
    try:
        done = subprocess.run(command, cwd=output.ROOT, capture_output=True, text=True)
        assert done.returncode == 75, done.stderr
        grow = ["mount", "-o", "remount,size=64m", workdir]
        subprocess.run(grow, check=True)
        done = subprocess.run(command, cwd=output.ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    finally:
        subprocess.run(["umount", workdir], check=True)


# A cell of a table


def test_a_cell_goes_on_inside_and_leaves_no_checkpoints(tiny, tmp_path, monkeypatch):
    command = ["--dataset", "planted", "--models", "ss-ica", "--folds", "1"]
    command += ["--workers", "1", "--max-epochs", "3", "--workdir", str(tmp_path)]
    log = tmp_path / "log"
    kept = tmp_path / "planted" / "cells"
    real = hopf_jax.fit

    def stopped_in_iteration_3(*given, callbacks, **more):
        def stop(record):
            if record["iteration"] == 3:
                signal.raise_signal(signal.SIGINT)

        return real(*given, callbacks=[*callbacks, stop], **more)

    monkeypatch.setattr(hopf_jax, "fit", stopped_in_iteration_3)
    with pytest.raises(SystemExit):
        reproduce.main([*command, "--log-json", str(log)])
    (folder,) = kept.iterdir()
    assert (folder / "checkpoints").is_dir()
    monkeypatch.setattr(hopf_jax, "fit", real)
    log.unlink()
    assert reproduce.main([*command, "--log-json", str(log)]) == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    epochs = [line for line in lines if line["event"] == "epoch"]
    assert epochs[0]["iteration"] > 1 and lines[0]["run"].startswith("planted/ss-ica")
    records = list(kept.iterdir())  # As printed, and without the echo.
    assert [record.suffix for record in records] == [".json"] * 2
    whole = tmp_path / "whole"
    assert reproduce.main([*command[:-1], str(whole)]) == 0
    tables = [output.read_json(w / "planted" / "table.json") for w in (tmp_path, whole)]
    scores = [table["models"]["ss-ica"]["iterations_micro_f1"] for table in tables]
    assert scores[0] == scores[1]


# Object storage


@pytest.fixture
def bucket(monkeypatch):
    buckets.google_storage(monkeypatch)
    return "gs://bucket/run"


@pytest.mark.parametrize("stored", ["locally", "in a bucket"])
def test_cells_are_saved_and_forgotten(bucket, tmp_path, stored):
    root = bucket if stored == "in a bucket" else str(tmp_path / "run")
    folder = arguments.workdir(root)
    assert str(folder) == root
    output.write_json(folder / "a.json", {"b": 1})
    assert output.read_json(folder / "a.json") == {"b": 1}
    assert output.read_json(folder / "none.json") is None
    cell = cells.Cell("planted", "gcn", 1, hopf_jax.Config())
    other = dataclasses.replace(cell, fold=2)
    assert str(cell.checkpoints(folder)).startswith(root + "/gcn-fold1-")
    for each in (cell, other):
        each.checkpoints(folder).mkdir(parents=True)
        (each.checkpoints(folder) / "x").write_text("x")
    cell.write(folder, {"scores": 1})
    assert cell.read(folder) == {"scores": 1}
    cell.forget(folder)
    assert cell.read(folder) is None and not cell.checkpoints(folder).exists()
    assert (other.checkpoints(folder) / "x").exists()
    assert epath.Path(root, "a.json").exists()
    cell.forget(folder / "nowhere")


def test_a_job_and_a_table_in_object_storage(tiny, bucket, capsys):
    command = ["--dataset", "planted", "--max-epochs", "2", "--workdir"]
    assert job.main([*command, f"{bucket}/job", "--model", "ss-ica"]) == 0
    folder = epath.Path(bucket)
    assert json.loads((folder / "job" / "scores.json").read_text())["epochs"] > 0
    assert (folder / "job" / "result.npz").exists()
    table = ["--models", "ss-ica", "--folds", "1", "--workers", "1"]
    assert reproduce.main([*command, bucket, *table]) == 0
    assert output.read_json(folder / "planted" / "table.json")["models"]
    assert (folder / "planted" / "report.html").exists()
    kept = list((folder / "planted" / "cells").iterdir())
    assert [record.suffix for record in kept] == [".json"] * 2


# What clusters are given


def test_the_manifest_is_a_jobset_that_restarts_what_can_be_repaired():
    manifest = yaml.safe_load((JOBS / "jobset.yaml").read_text())
    assert manifest["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
    assert manifest["kind"] == "JobSet"
    policy = manifest["spec"]["failurePolicy"]
    assert policy["maxRestarts"] >= 10
    reasons = {"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
    assert policy["rules"] == [reasons]
    (replicated,) = manifest["spec"]["replicatedJobs"]
    spec = replicated["template"]["spec"]
    # JobSet restarts only what has failed, and a Job that retries by itself has not.
    assert spec["backoffLimit"] == 0
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] >= 1
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    codes = {"containerName": container["name"], "operator": "In", "values": [2]}
    rule = {"action": "FailJob", "onExitCodes": codes}  # 2 is argparse's, and ours.
    assert spec["podFailurePolicy"]["rules"] == [rule]
    assert pod["restartPolicy"] == "Never"  # Required by podFailurePolicy.
    assert pod["terminationGracePeriodSeconds"] >= 30
    # A name of a Job's pod is a DNS label of at most 63 letters.
    name = f"{manifest['metadata']['name']}-{replicated['name']}-0-0-abcde"
    assert len(name) <= 63 and name.replace("-", "").isalnum() and name.islower()
    # It runs a command of ours, on as many chips as the topology has.
    assert container["command"] == ["python", "-m", "experiments.job"]
    options = job.parser().parse_args(container["args"])
    assert str(options.workdir).startswith("gs://") and options.log_json == "-"
    assert all(isinstance(each["value"], str) for each in container["env"])
    selector = pod["nodeSelector"]
    assert all(isinstance(value, str) for value in selector.values())
    rows, columns = selector["cloud.google.com/gke-tpu-topology"].split("x")
    chips = container["resources"]["limits"]["google.com/tpu"]
    assert chips == int(rows) * int(columns)


def test_the_image_has_what_the_jobs_run():
    lines = (JOBS / "Dockerfile").read_text().splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY")]
    for names in copied:
        assert all((output.ROOT / name).exists() for name in names), names
    entry = json.loads(next(x for x in lines if x.startswith("ENTRY")).split(" ", 1)[1])
    assert entry == ["python", "-m", "experiments.job"]
    text = "\n".join(lines)
    assert re.search(r"^ARG PYTHON_IMAGE$", text, re.M), "no default"
    assert "FROM ${PYTHON_IMAGE:?" in text and "--require-hashes" in text
    pins = [
        (output.ROOT / name).read_text().splitlines()
        for name in ("requirements.txt", "experiments/jobs/requirements.txt")
    ]
    (jax,) = [x for x in pins[0] if x.startswith("jax==")]
    assert jax.replace("jax", "jax[tpu]", 1) in pins[1]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_executable_bash(script):
    done = subprocess.run(["bash", "-n", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert script.stat().st_mode & stat.S_IXUSR


@pytest.mark.parametrize("page", [*SCRIPTS, JOBS / "README.md"], ids=lambda p: p.name)
def test_every_command_line_that_is_shown_is_taken(page):
    text = page.read_text().replace("\\\n#", "")
    pattern = r"`([^`\n]*--dataset[^`\n]*)`|^(?!\|)#?(.*--dataset.*)$"
    shown = ["".join(found) for found in re.findall(pattern, text, re.M)]
    assert shown
    for line in shown:
        words = shlex.split(line)
        given = words[words.index("--dataset") :]
        if "--workdir" not in given:
            given += ["--workdir", words[words.index("--dataset") - 1]]
        job.parser().parse_args(given)


def fake(folder, name, text):
    """A program of this name, first on the path."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def with_fakes(folder, **more):
    path = f"{folder}:{os.environ['PATH']}"
    return {"PATH": path, "CALLS": str(folder / "calls")} | more


def calls(folder):
    path = pathlib.Path(folder / "calls")
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize(
    ("status", "restarts", "requeued"),
    [(0, 0, False), (2, 0, False), (143, 0, True), (1, 3, True), (1, 100, False)],
)
def test_slurm_requeues_what_a_restart_may_mend(tmp_path, status, restarts, requeued):
    bin_ = tmp_path / "bin"
    fake(bin_, "srun", f'echo "srun $*" >> $CALLS; exit {status}')
    fake(bin_, "scontrol", 'echo "scontrol $*" >> $CALLS')
    done = subprocess.run(
        [JOBS / "slurm.sh", "--dataset", "cora", "--workdir", "a b"],
        env=with_fakes(bin_, SLURM_JOB_ID="7", SLURM_RESTART_COUNT=str(restarts)),
        capture_output=True,
    )
    assert done.returncode == status
    ran, *more = calls(bin_)
    assert "-m experiments.job --log-json - --dataset cora --workdir a b" in ran
    assert more == (["scontrol requeue 7"] if requeued else [])


GCLOUD = """
echo "$*" >> $CALLS
state=$(cat $STATE)
last=${@: -1}
case "$*" in
  *describe*) [ "$state" = none ] && exit 1; echo "$state" ;;
  *create*)
    for word in "$@"; do
      case $word in startup-script=*) cp "${word#*=}" $STATE.startup ;; esac
    done
    echo ${NEXT:-ACTIVE} > $STATE ;;
  *delete*) echo none > $STATE ;;
  *"storage ls"*) [ -e "$BUCKET/${last##*/}" ] ;;
  *"storage cat"*) cat "$BUCKET/${last##*/}" ;;
esac
"""
# Between two looks: preempted once, then the job writes its scores.
SLEEP = """
count=$(cat $STATE.count 2> /dev/null || echo 0)
echo $((count + 1)) > $STATE.count
case $count in
  0) echo SUSPENDED > $STATE ;;
  2) : > "$BUCKET/$ENDS" ;;
  9) kill $PPID ;;
esac
"""


def queued(tmp_path, *more, ends="scores.json"):
    bin_, bucket, state = (tmp_path / n for n in ("bin", "bucket", "state"))
    bucket.mkdir()
    state.write_text("none\n")
    fake(bin_, "gcloud", GCLOUD)
    fake(bin_, "sleep", SLEEP)
    about = {"PROJECT": "p", "ZONE": "z", "IMAGE": "image:1", "ENDS": ends}
    paths = {"STATE": str(state), "BUCKET": str(bucket)}
    done = subprocess.run(
        [JOBS / "tpu_queued_resource.sh", *more],
        env=with_fakes(bin_, **about, **paths),
        capture_output=True,
        text=True,
        timeout=60,
    )
    verbs = [call.split()[3] for call in calls(bin_) if " queued-resources " in call]
    return done, [verb for verb in verbs if verb != "describe"], state


@pytest.mark.parametrize(("ends", "status"), [("scores.json", 0), ("failed", 2)])
def test_a_preempted_tpu_is_asked_for_again(tmp_path, ends, status):
    words = ["pubmed", "gs://b/run/", "--dataset", "pubmed", "--fold", "2"]
    done, verbs, state = queued(tmp_path, *words, ends=ends)
    assert done.returncode == status, done.stderr
    assert verbs == ["create", "delete", "create", "delete"]
    # What the VM runs at its start is bash, and a command of ours.
    startup = pathlib.Path(f"{state}.startup")
    assert subprocess.run(["bash", "-n", startup]).returncode == 0
    text = startup.read_text().replace("\\\n", " ")
    line = next(line for line in text.splitlines() if "docker run" in line)
    given = shlex.split(line)
    options = job.parser().parse_args(given[given.index("image:1") + 1 :])
    assert str(options.workdir) == "gs://b/run" and options.fold == 2


@pytest.mark.parametrize("words", [[], ["name"], ["name", "results", "--dataset", "x"]])
def test_the_tpu_script_says_how_it_is_used(tmp_path, words):
    done, verbs, _ = queued(tmp_path, *words)
    assert done.returncode == 2 and verbs == []
    assert "tpu_queued_resource.sh" in done.stderr and "gs://" in done.stderr


# Several processes

SAY = (
    "import json, os, pathlib, sys; e = os.environ; "
    "me = e['JAX_PROCESS_ID']; "
    "pathlib.Path(sys.argv[1], me).write_text(json.dumps("
    "[e['JAX_COORDINATOR_ADDRESS'], e['JAX_NUM_PROCESSES'], e.get('XLA_FLAGS')]))"
)


def python(code, *arguments):
    return [sys.executable, "-c", code, *map(str, arguments)]


def test_processes_know_who_they_are(tmp_path):
    command = ["--processes", "3", "--devices", "2", "--", *python(SAY, tmp_path)]
    assert launch.main(command) == 0
    said = [json.loads((tmp_path / str(i)).read_text()) for i in range(3)]
    assert said[0] == said[1] == said[2]
    assert said[0][0].startswith("127.0.0.1:") and said[0][1] == "3"
    assert "--xla_force_host_platform_device_count=2" in said[0][2]


def test_one_that_fails_ends_the_others(tmp_path, capfd):
    code = (
        "import os, pathlib, sys, time\n"
        "me = os.environ['JAX_PROCESS_ID']\n"
        "pathlib.Path(sys.argv[1], me).write_text(str(os.getpid()))\n"
        "while me == '1' and not pathlib.Path(sys.argv[1], '0').exists():\n"
        "    time.sleep(0.01)\n"
        "sys.exit(7) if me == '1' else time.sleep(100)\n"
    )
    begun = time.monotonic()
    assert launch.run_processes(python(code, tmp_path), 2, grace=0.2) == 7
    assert time.monotonic() - begun < 50
    assert "killing [0]" in capfd.readouterr().err
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "0").read_text()), 0)


def test_restarts_are_counted(tmp_path, capfd):
    code = (
        "import os, pathlib, sys\n"
        "file = pathlib.Path(sys.argv[1], os.environ['JAX_PROCESS_ID'])\n"
        "file.write_text(file.read_text() + 'x' if file.exists() else 'x')\n"
        "sys.exit(len(file.read_text()) < int(sys.argv[2]))\n"
    )
    for needed, restarts, status in ((2, 1, 0), (9, 1, 1)):
        folder = tmp_path / str(needed)
        folder.mkdir()
        command = ["--restarts", str(restarts), "--", *python(code, folder, needed)]
        assert launch.main(command) == status
        assert (folder / "0").read_text() == "xx"
    assert "0 restarts left" in capfd.readouterr().err


def test_a_command_is_needed(capsys):
    with pytest.raises(SystemExit):
        launch.main(["--processes", "2", "--"])
    assert "give the command to run after --" in capsys.readouterr().err
