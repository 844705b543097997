"""One interpreter for the checks that are a Python program beside torch: it imports torch once, and each check runs in
a fork of it.

An import of torch takes two CPU seconds, and an image of today has five to fifteen such checks. A check that does not
pass in the fork, or has no result there, runs again as the command that it is: that result counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envbuild.build.blocks.checks import PYTHON, torch_program
from envbuild.spec.recipe import Check
from envbuild.verify.recipe_checks import SHELL_COMMAND, check_result, run_check
from envbuild.verify.results import AuditResult, Status
from envbuild.verify.run_inspector import Runner

LIMIT = 300  # seconds of one check in a fork
LARGEST = 1 << 20  # bytes of its output that are read
MARK = "ENVBUILD-RAN "

# Any Python from 3.8. The fork leaves the loop and runs the program as `python -c` would, with the end of the
# interpreter: a library that crashes there fails its check.
FORKS = """
import json, os, signal, sys, time, types
import torch
def start(program):
    global main
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    exec(compile(program, "<string>", "exec"), main.__dict__)
def finish(child, limit):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGKILL
todo = None
for number, program in enumerate({programs!r}):
    output, began = os.memfd_create("output"), time.monotonic()
    child = os.fork()
    if not child:
        os.dup2(output, 1)
        os.dup2(output, 2)
        todo = program
        break
    code = finish(child, {limit})
    text = os.pread(output, {largest}, max(0, os.fstat(output).st_size - {largest})).decode("utf-8", "replace")
    os.close(output)
    row = dict(number=number, code=code, output=text, seconds=round(time.monotonic() - began, 1))
    os.write(1, ("\\n" + {mark!r} + json.dumps(row) + "\\n").encode())
if todo is not None:
    start(todo)
"""


@dataclass(frozen=True, slots=True)
class SharedInterpreter:
    """Checks that run in forks of one interpreter. `seconds`: check → how long it took, after `run`.

    shell: the command that opens a shell in the image: the hint of a failure.
    """

    checks: Sequence[Check]
    runner: Runner
    shell: str = SHELL_COMMAND
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self) -> list[AuditResult]:
        """Return the results, in the order of the checks."""
        _, output = self.runner([PYTHON, "-c", forks_program([torch_program(check) for check in self.checks])])
        ran = parse_rows(output)
        return [self._result(check, ran.get(number)) for number, check in enumerate(self.checks)]

    def _result(self, check: Check, row: Mapping[str, Any] | None) -> AuditResult:
        if row is not None:
            self.seconds[check.name] = row["seconds"]
            found = check_result(check, row["code"], row["output"], self.shell)
            if found.status == Status.PASS:
                return found
        return run_check(check, self.runner, self.shell)


def can_share(check: Check) -> bool:
    """Return whether a check may run in a fork of an interpreter that has imported torch."""
    return check.tier == "run" and bool(torch_program(check))


def forks_program(programs: Sequence[str]) -> str:
    """Return the program that imports torch, runs each of `programs` in a fork, and prints a row of each."""
    return FORKS.strip().format(programs=list(programs), limit=LIMIT, largest=LARGEST, mark=MARK)


def parse_rows(output: str) -> dict[int, Mapping[str, Any]]:
    """Return number of the program → its row, of those that `forks_program` printed. Other lines are not read."""
    found: dict[int, Mapping[str, Any]] = {}
    for line in output.splitlines():
        try:
            row = json.loads(line.removeprefix(MARK)) if line.startswith(MARK) else None
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and [type(row.get(key)) for key in ("number", "code", "output")] == [int, int, str]:
            found[row["number"]] = {**row, "seconds": _seconds(row.get("seconds"))}
    return found


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e6 else 0.0
