"""``make A B --json`` prints exactly one object, however it ends: an error, a signal, a reader that does not read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import ROOT
from tests.support.signals import reset_signals

pytestmark = pytest.mark.unit

# `envbuild make cpu-ucx cpu-ucc --json`: the first image is made at once; SECOND is what happens with the second.
PROGRAM = """
import os, signal, sys, time
import envbuild.make
from envbuild.cli.main import main
from envbuild.core import signals
from envbuild.core.errors import BuildError
from envbuild.export.built_image import ImageRecord

def make(name, workspace, options):
    if name == "cpu-ucc":
        {second}
    return ImageRecord(**{{**FIELDS, "image": name}})

FIELDS = {{key: "/" + key for key in ImageRecord.__dataclass_fields__}} | {{
    "messages": ["x" * {length}], "layers": [], "built": [], "reused": [], "seconds": 0.0, "up_to_date": False}}
envbuild.make.make = make
{setting}
sys.argv = ["envbuild", "make", "cpu-ucx", "cpu-ucc", "--json"]
main()
"""


def start(store: Path, second: str, *, length: int = 1, setting: str = "") -> subprocess.Popen[str]:
    program = PROGRAM.format(second=second, length=length, setting=setting)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ENVBUILD_STORE": str(store)}
    return subprocess.Popen(
        [sys.executable, "-X", "utf8", "-c", program],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=reset_signals,
    )


def finish(process: subprocess.Popen[str]) -> tuple[dict[str, Any], str, int]:
    """Return the one object on stdout, stderr and the exit code."""
    out, err = process.communicate(timeout=60)
    return json.loads(out), err, process.returncode


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("SIGINT", 130),
        pytest.param("SIGTERM", 143, marks=pytest.mark.slow_unit),
        pytest.param("SIGHUP", 129, marks=pytest.mark.slow_unit),
    ],
)
def test_a_signal_ends_it_with_an_object_that_has_the_results_so_far(name: str, code: int, tmp_path: Path) -> None:
    answer, err, exit_code = finish(start(tmp_path, f"os.kill(os.getpid(), signal.{name}); time.sleep(60)"))
    assert exit_code == code
    assert [one["image"] for one in answer["images"]] == ["cpu-ucx"]
    assert (answer["schema"], answer["error"]["code"], answer["error"]["exit_code"]) == (1, "interrupted", code)
    assert answer["error"]["findings"][0]["message"] in err and "Traceback" not in err


@pytest.mark.slow_unit
def test_an_error_of_the_second_keeps_the_first(tmp_path: Path) -> None:
    answer, err, exit_code = finish(start(tmp_path, "raise BuildError('unit x failed', 'read the log')"))
    assert exit_code == 6 and "Traceback" not in err
    assert [one["image"] for one in answer["images"]] == ["cpu-ucx"]
    assert answer["error"]["findings"] == [{"message": "unit x failed", "where": "", "hint": "read the log"}]


@pytest.mark.slow_unit
def test_a_fault_of_envbuild_is_an_object_with_its_traceback_on_stderr(tmp_path: Path) -> None:
    answer, err, exit_code = finish(start(tmp_path, "raise RuntimeError('not thought of')"))
    assert (exit_code, answer["error"]["code"], answer["error"]["exit_code"]) == (1, "internal", 1)
    assert [one["image"] for one in answer["images"]] == ["cpu-ucx"]
    assert "not thought of" in answer["error"]["findings"][0]["message"] and "Traceback" in err


@pytest.mark.slow_unit
def test_an_error_while_a_signal_ends_it_is_not_a_second_object(tmp_path: Path) -> None:
    second = """
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        finally:
            raise BuildError("the child is gone")"""
    answer, err, exit_code = finish(start(tmp_path, second))
    assert (exit_code, answer["error"]["code"]) == (143, "interrupted")
    assert "the child is gone" not in err


@pytest.mark.parametrize("unbuffered", ["", pytest.param("1", marks=pytest.mark.slow_unit)])
def test_a_signal_while_the_object_is_printed_does_not_cut_it_in_two(
    unbuffered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    process = start(tmp_path, "pass", length=1_000_000)  # more than a pipe holds: the process waits for its reader
    assert process.stdout is not None
    assert os.read(process.stdout.fileno(), 1) == b"{"
    process.terminate()
    time.sleep(0.2)
    out, _ = process.communicate(timeout=60)
    answer = json.loads("{" + out)
    assert process.returncode == 0 and len(answer["images"]) == 2 and "error" not in answer


@pytest.mark.slow_unit
def test_a_reader_that_does_not_read_cannot_keep_a_stopped_command(tmp_path: Path) -> None:
    second = "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)"
    process = start(tmp_path, second, length=1_000_000, setting="signals.PATIENCE = 0.5")
    assert process.wait(timeout=60) == 143
    process.communicate()


def test_a_shell_in_a_failed_step_would_share_stdout_with_the_object(tmp_path: Path) -> None:
    from tests.support.command import envbuild

    done = envbuild("make", "cpu-ucx", "--json", "--shell-on-fail", ENVBUILD_STORE=str(tmp_path))
    assert (json.loads(done.stdout)["error"]["code"], done.returncode) == ("spec", 2)
