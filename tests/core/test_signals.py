"""A signal ends a command: waits end, what would be left is removed, and the exit code is the shell's."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envbuild.core import signals

pytestmark = pytest.mark.unit

HEAD = """
import os, signal, sys, threading, time
from pathlib import Path
from envbuild.core import signals
left, woken = Path(sys.argv[1]), threading.Event()
def ready(): os.write(1, b"ready")
"""
WAITS = """
with signals.listening():
    begun = threading.Event()
    def wait():
        with signals.at_stop(woken.set):
            begun.set()
            woken.wait(20)
            os.write(1, b" woken")
    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    begun.wait(20)
    try:
        ready()
        time.sleep(20)
    except signals.Interrupted:
        waiting.join(20)
        assert signals.number() == int(sys.argv[2])
        start = time.monotonic()
        signals.pause(20)
        with signals.at_stop(lambda: os.write(1, b" at once")):
            pass
        os.write(1, b" interrupted" if time.monotonic() - start < 10 else b" late")
        raise
"""
STUCK = """
signals.PATIENCE = float(sys.argv[3])
with signals.listening(), signals.leftover(lambda: left.unlink()):
    left.touch()
    with signals.leftover(lambda: os.write(1, b" never")):
        pass
    try:
        ready()
        time.sleep(20)
    except signals.Interrupted:
        os.write(1, b" stuck")
        time.sleep(20)
"""

SLOW = """
signals.PATIENCE = signals.CLEANING = float(sys.argv[3])
with signals.listening(), signals.leftover(lambda: left.unlink()), signals.leftover(lambda: time.sleep(1000)):
    left.touch()
    try:
        ready()
        time.sleep(1000)
    except signals.Interrupted:
        time.sleep(1000)
"""

IN_A_CALLBACK = """
import weakref
class Thing: pass
wanted = {int(sys.argv[2])}
signal.pthread_sigmask(signal.SIG_BLOCK, wanted)  # in every thread
with signals.listening(), signals.leftover(lambda: left.unlink()):
    left.touch()
    ready()
    while not signal.sigpending() & wanted:
        time.sleep(0.01)
    thing = Thing()
    watched = weakref.ref(thing, lambda _: signal.pthread_sigmask(signal.SIG_UNBLOCK, wanted))
    del thing
    os.write(1, b" went on")
"""


def run(tmp_path: Path, program: str, number: int, patience: float = 0.2, again: bool = False) -> tuple[int, str, str]:
    """Send a signal to a program once it is ready; its exit code, stdout and stderr."""
    child = subprocess.Popen(
        [sys.executable, "-c", HEAD + program, str(tmp_path / "left"), str(number), str(patience)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PYTHONPATH": str(Path(signals.__file__).parents[2])},
    )
    assert child.stdout is not None
    text = child.stdout.read(5)
    child.send_signal(number)
    if again:
        text += child.stdout.read(6)
        child.send_signal(signal.SIGINT)
    output, errors = child.communicate(timeout=20)
    return child.returncode, (text + output).decode(), errors.decode()


@pytest.mark.parametrize(
    ("number", "word"),
    [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "stopped by SIGTERM"), (signal.SIGHUP, "SIGHUP")],
)
def test_a_signal_ends_waits(number: int, word: str, tmp_path: Path) -> None:
    code, output, errors = run(tmp_path, WAITS, number)
    assert (code, output) == (128 + number, "ready woken at once interrupted")
    assert word in errors and len(errors.splitlines()) == 1


def test_a_command_that_does_not_end_is_ended_and_leaves_nothing(tmp_path: Path) -> None:
    code, output, _ = run(tmp_path, STUCK, signal.SIGTERM)
    assert (code, output, (tmp_path / "left").exists()) == (143, "ready stuck", False)


def test_a_signal_during_a_callback_whose_exceptions_python_ignores_ends_the_command(tmp_path: Path) -> None:
    """Such are those of weak references and __del__: importlib and threading use some."""
    code, output, errors = run(tmp_path, IN_A_CALLBACK, signal.SIGINT, patience=15)
    assert (code, output, (tmp_path / "left").exists()) == (130, "ready", False)
    assert errors == "interrupted; the next run resumes here\n"


def test_what_takes_long_to_remove_does_not_keep_a_command_nor_the_rest(tmp_path: Path) -> None:
    code, _, _ = run(tmp_path, SLOW, signal.SIGTERM)
    assert (code, (tmp_path / "left").exists()) == (143, False)


def test_a_signal_ends_a_command_in_five_seconds() -> None:
    assert signals.PATIENCE + signals.CLEANING < 5


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    start = time.monotonic()
    code, output, _ = run(tmp_path, STUCK, signal.SIGTERM, patience=15, again=True)
    assert (code, output, (tmp_path / "left").exists()) == (143, "ready stuck", False)
    assert time.monotonic() - start < 12


def test_a_pause_without_a_signal_lasts() -> None:
    start = time.monotonic()
    signals.pause(0.15)
    assert time.monotonic() - start >= 0.15 and signals.number() == 0
