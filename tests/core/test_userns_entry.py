"""A function in a process of its own: what it has of its caller, and what it answers when it fails."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from envbuild.core.errors import EngineError, Finding, SpecError
from envbuild.core.userns import process

pytestmark = [pytest.mark.unit, pytest.mark.skipif(os.geteuid() != 0, reason="others need subordinate ids")]


def surroundings() -> dict[str, object]:
    mask = os.umask(0)
    return {
        "umask": mask,
        "ignored": [number for number in (signal.SIGINT, signal.SIGQUIT) if signal.getsignal(number) == signal.SIG_IGN],
        "session": os.getsid(0) == os.getpid(),
        "input": os.path.samestat(os.fstat(0), Path("/dev/null").stat()),
        "environment": sorted(os.environ),
        "parent": os.getppid(),
    }


def report_mistakes() -> None:
    raise SpecError.of([Finding("one", "x.yaml:1:1"), Finding("two")])


def crash() -> float:
    return 1 / 0


def answer_at_length(size: int) -> str:
    print("output")
    return "x" * size


def fail_at_length(size: int) -> None:
    raise SpecError("x" * size)


@pytest.mark.slow_unit
def test_an_answer_may_be_longer_than_a_pipe_holds() -> None:
    """The caller reads the output to its end first."""
    child = process.spawn(answer_at_length, {"size": 1 << 20})
    output, _ = child.process.communicate(timeout=60)
    assert output == b"output\n" and child.result() == "x" * (1 << 20)
    child = process.spawn(fail_at_length, {"size": 1 << 20})
    child.process.communicate(timeout=60)
    with pytest.raises(SpecError, match="x" * 1000):
        child.result()


def test_what_a_process_has_of_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    before = os.umask(0o077)
    try:
        found = process.spawn(surroundings, {}).result()
    finally:
        os.umask(before)
    assert found == {
        "umask": 0o022,
        "ignored": [],
        "session": True,
        "input": True,
        "environment": ["LC_ALL", "PATH"],
        "parent": os.getpid(),
    }


def test_signals_of_the_callers_terminal_do_not_reach_it() -> None:
    """It has a session of its own also with streams of the caller."""
    with Path("/dev/zero").open("r+b", buffering=0) as file:
        found = process.spawn(surroundings, {}, streams=[file.fileno()] * 3).result()
    assert (found["ignored"], found["session"], found["input"]) == ([], True, False)


def test_an_error_of_the_user_has_no_traceback() -> None:
    child = process.spawn(report_mistakes, {})
    output, _ = child.process.communicate()
    with pytest.raises(SpecError) as caught:
        child.result()
    assert output == b""
    assert [finding.where for finding in caught.value.findings] == ["x.yaml:1:1", ""]


def test_a_mistake_of_the_program_has_one() -> None:
    child = process.spawn(crash, {})
    output, _ = child.process.communicate()
    with pytest.raises(EngineError, match="failed"):
        child.result()
    assert b"Traceback" in output and b"ZeroDivisionError" in output


def test_a_process_can_be_ended() -> None:
    child = process.spawn(signal.pause, {})
    child.kill()
    assert child.process.returncode == -signal.SIGKILL
    child.kill()
