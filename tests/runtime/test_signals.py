"""SIGTERM and SIGINT: work is saved, and the process ends as it would without."""

import signal
import subprocess
import sys
import time

from hopf_jax.runtime import signals

CHILD = """
import importlib.util, signal, time

# The module alone: importing the package takes two seconds.
spec = importlib.util.spec_from_file_location("signals", {path!r})
signals = importlib.util.module_from_spec(spec)
spec.loader.exec_module(signals)

def save():
    print("saving", flush=True)
    time.sleep({takes})
    print("saved", flush=True)

{before}
try:
    with signals.saved_at_signals(save) as interruption:
        print("ready", flush=True)
        {work}
except KeyboardInterrupt:
    print("KeyboardInterrupt", flush=True)
    raise
"""
SLEEP = "time.sleep(60)"


def child(*, before="", work=SLEEP, takes=0):
    code = CHILD.format(path=signals.__file__, before=before, work=work, takes=takes)
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def ended(process):
    with process:
        said = process.stdout.read().split()
    return process.returncode, said


def test_sigterm_saves_and_ends_as_it_would():
    process = child()
    process.send_signal(signal.SIGTERM)
    assert ended(process) == (-signal.SIGTERM, ["saving", "saved"])


def test_sigint_saves_and_is_a_keyboard_interrupt():
    process = child()
    process.send_signal(signal.SIGINT)
    status, said = ended(process)
    assert status != 0 and said == ["saving", "saved", "KeyboardInterrupt"]


def test_the_same_signal_twice_at_once_is_one_and_a_later_one_kills():
    process = child(takes=20)
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "saving\n"
    process.send_signal(signal.SIGTERM)
    time.sleep(1.2)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert ended(process) == (-signal.SIGTERM, [])


def test_a_signal_waits_while_a_checkpoint_is_written():
    work = "\n        ".join(
        [
            "with interruption.hold():",
            "    signal.raise_signal(signal.SIGTERM)",
            "    print('written', flush=True)",
            "print('never', flush=True)",
        ]
    )
    assert ended(child(work=work)) == (-signal.SIGTERM, ["written", "saving", "saved"])


def test_someone_elses_handler_is_called_after_saving():
    handler = "lambda *a: print('theirs', flush=True)"
    process = child(before=f"signal.signal(signal.SIGTERM, {handler})")
    process.send_signal(signal.SIGTERM)
    assert ended(process) == (128 + signal.SIGTERM, ["saving", "saved", "theirs"])


def test_an_ignored_signal_stays_ignored():
    work = "signal.raise_signal(signal.SIGINT); print('on', flush=True)"
    before = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    assert ended(child(before=before, work=work)) == (0, ["on"])
