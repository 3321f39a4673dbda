"""Several processes of one command: told who they are, ended together."""

import json
import os
import sys
import time

import pytest

from experiments import launch

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
