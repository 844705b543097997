"""Checks beside torch: one import for all of them, a process for each, and the verdict that each has alone.

The interpreter is this one, with a module in the place of torch that counts its imports.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from envbuild.build.blocks.checks import PYTHON, beside_torch, imports, torch_program
from envbuild.spec.recipe import Check
from envbuild.verify import shared_interpreter
from envbuild.verify.results import AuditResult, Status
from envbuild.verify.shared_interpreter import MARK, SharedInterpreter, can_share, parse_rows
from envbuild.verify.tasks import Task
from envbuild.verify.verify import share_torch

pytestmark = pytest.mark.unit

TORCH = """
import os
with open(os.path.join(os.path.dirname(__file__), "imports"), "a") as file:
    file.write("imported\\n")
version = "2.15"
"""


class Place:
    """A folder with a module torch. Commands run in it, with this interpreter for that of the image."""

    def __init__(self, folder: Path, torch: str = TORCH) -> None:
        self.folder, self.commands = folder, 0
        (folder / "torch.py").write_text(torch)

    def __call__(self, argv: Sequence[str]) -> tuple[int, str]:
        self.commands += 1
        words = [word.replace(PYTHON, sys.executable) for word in argv]
        done = subprocess.run(
            words,
            cwd=self.folder,
            env={"PYTHONPATH": str(self.folder), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    def run(self, *programs: str, expect: str = "") -> list[AuditResult]:
        checks = [beside_torch(f"check {number}", text, expect) for number, text in enumerate(programs)]
        self.shared = SharedInterpreter(checks, self)
        return self.shared.run()

    @property
    def imports(self) -> int:
        return len((self.folder / "imports").read_text().splitlines())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_torch_is_imported_once_for_all_and_each_has_a_process(place: Place) -> None:
    program = "import torch, os, sys; print(torch.version, hasattr(torch, 'seen'), sys.argv, __name__); torch.seen = 1"
    results = place.run(program, program, program, expect=r"^2\.15 False \['-c'\] __main__$")
    assert [result.status for result in results] == [Status.PASS] * 3
    assert place.imports == place.commands == 1
    assert sorted(place.shared.seconds) == ["check 0", "check 1", "check 2"]


ENDS = {
    "an exception": "raise ValueError('no')",
    "an exit code": "import sys; sys.exit(3)",
    "a signal": "import os; os.abort()",
    "a crash at the end": "import atexit, os; atexit.register(os._exit, 7)",
    "other output": "print('nothing of that kind')",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_what_does_not_pass_runs_again_alone_and_has_that_result(end: str, place: Place) -> None:
    good, bad, last = place.run(
        "import torch\nprint('fine')", f"import torch\n{end}", "import torch\nprint('fine')", expect="fine"
    )
    assert (good.status, bad.status, last.status) == (Status.PASS, Status.FAIL, Status.PASS)
    assert place.imports == place.commands == 2
    alone = SharedInterpreter([], place)._result(beside_torch("check 1", f"import torch\n{end}", "fine"), None)
    assert bad == alone


def test_a_check_that_passes_only_alone_has_passed(place: Place) -> None:
    """A fork differs from a process of its own: the command of the check is what counts."""
    (place.folder / "torch.py").write_text(f"{TORCH}pid = os.getpid()\n")
    result, other = place.run("import torch, os; assert torch.pid == os.getpid()", "import torch")
    assert (result.status, other.status, place.commands) == (Status.PASS, Status.PASS, 2)


def test_a_check_that_ends_the_interpreter_takes_no_result_with_it(place: Place) -> None:
    ends = (
        "import torch, os, signal\n"
        "if not os.path.exists('once'):\n"
        "    open('once', 'w').close()\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n"
        "print('fine')"
    )
    results = place.run("import torch; print('fine')", ends, "import torch; print('fine')", expect="fine")
    assert [result.status for result in results] == [Status.PASS] * 3
    assert place.commands == 3  # the last two alone


def test_a_torch_that_cannot_be_imported_fails_each_check_with_its_own_message(tmp_path: Path) -> None:
    place = Place(tmp_path, "raise ImportError('libtorch_cpu.so: no such file')")
    results = place.run("import torch; print(1)", "import torch; print(2)")
    assert [result.status for result in results] == [Status.FAIL] * 2 and place.commands == 3
    assert "libtorch_cpu.so: no such file" in results[0].detail and "print(2)" in results[1].detail


def test_a_check_that_hangs_ends_and_runs_again_alone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_interpreter, "LIMIT", 0.5)
    hangs = "import torch, os, time; os.path.exists('once') or (open('once', 'w').close(), time.sleep(60))"
    first, second = place.run(hangs, "import torch")
    assert (first.status, second.status, place.commands) == (Status.PASS, Status.PASS, 2)


def test_long_output_is_read_from_its_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_interpreter, "LARGEST", 100)
    results = place.run("import torch; print('x' * 4000 + 'end')", "import torch; print('short end')", expect="end$")
    assert [result.status for result in results] == [Status.PASS] * 2 and place.commands == 1


@pytest.mark.parametrize(
    "line",
    ["", "other", MARK, f"{MARK}[1]", f'{MARK}{{"number": 1}}', f'{MARK}{{"number": true, "code": 0, "output": ""}}',
     f'{MARK}{{"number": 0, "code": "0", "output": ""}}', MARK + "[" * 100_000],
)  # fmt: skip
def test_other_lines_are_no_rows(line: str) -> None:
    row = f'{MARK}{{"number": 4, "code": 0, "output": "text", "seconds": "long"}}'
    assert parse_rows(f"{line}\n{row}\n") == {4: {"number": 4, "code": 0, "output": "text", "seconds": 0.0}}


def test_which_checks_share(tmp_path: Path) -> None:
    made = imports("apex", ("apex", "amp_C"))
    assert can_share(made) and torch_program(made) == "import torch, apex, amp_C; print('imported')"
    for command in (
        f'{PYTHON} -c "import torch"',
        f"A=b {made.command}",
        f"{made.command} && true",
        f"{PYTHON} -c 'import torchaudio'",
        f"{PYTHON} -c 'import os'",
        f"{PYTHON} -c 'import torch",
        "/usr/bin/python3 -c 'import torch'",
    ):
        assert not can_share(Check("other", command)), command
    assert not can_share(Check("gpu", made.command, tier="gpu"))
    with pytest.raises(ValueError, match="must begin with import torch"):
        beside_torch("wrong", "import numpy, torch", "")


def test_tasks_that_can_share_become_one_in_the_place_of_the_first() -> None:
    def task(name: str, check: Check | None = None) -> Task:
        return Task(name, lambda: [], check=check)

    def nothing(_: Sequence[str]) -> tuple[int, str]:
        return 1, ""

    run: Callable[[Sequence[str]], tuple[int, str]] = nothing
    first, second = (beside_torch(name, "import torch", "") for name in ("first", "second"))
    other = Check("other", "true")
    tasks = [task("audit"), task("first", first), task("other", other), task("second", second)]
    assert [one.name for one in share_torch(tasks, run, "")] == ["audit", "2 checks beside torch", "other"]
    assert share_torch(tasks[:3], run, "") == tasks[:3]
