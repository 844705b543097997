"""Results of checks, and what a kind of node is expected to have, as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

SCHEMA = 1  # of the answer with --json
PASS, FAIL, NOT_RUN = "pass", "fail", "not-run"
# of a failure: works, but slower or less safe; the user can fix it; an administrator can; hardware must be replaced
MINOR, USER, ADMINISTRATOR, HARDWARE = "minor", "user", "administrator", "hardware"
SEVERITIES = (MINOR, USER, ADMINISTRATOR, HARDWARE)
DRAINING = (ADMINISTRATOR, HARDWARE)  # a node with such a failure is not for jobs


@dataclass(frozen=True)
class Result:
    """The result of one check, or of one part of it.

    `detail`: what was found, or for `NOT_RUN` the reason; `fix`: what repairs it. `drains`: whether the failure makes a
    node unfit for jobs, if its severity does: a fault of the controller, or a node that is drained, does not.
    `applies`: of `NOT_RUN`, whether there is something to judge here: without a GPU, its checks state nothing."""

    status: str
    detail: str
    severity: str = ""
    fix: str = ""
    check: str = ""
    group: str = ""
    drains: bool = True
    applies: bool = True

    @property
    def unfit(self) -> bool:
        """Return whether this failure drains a node."""
        return self.status == FAIL and self.severity in DRAINING and self.drains


@dataclass(frozen=True)
class Need:
    """The properties of the nodes of a target. Empty values: nothing is expected.

    `fabric`: none, ethernet, infiniband or efa. `nics`, `rate` (Gb/s), `layer`: the network ports; `names`: those of
    their devices. `efa`: number of EFA devices. `source`: the name of the target."""

    source: str = ""
    arch: str = ""
    cpu: str = ""
    gpu: str = ""
    gpus: int = 0
    nvidia: bool = False
    driver: str = ""
    fabric: str = ""
    nics: int = 0
    rate: int = 0
    layer: str = ""
    names: tuple[str, ...] = ()
    efa: int = 0
    imex: bool = False

    @property
    def neuron(self) -> bool:
        return bool(self.gpu) and not self.nvidia


def passed(detail: str) -> Result:
    """Return a result that passed."""
    return Result(PASS, detail)


def failed(detail: str, severity: str, fix: str, drains: bool = True) -> Result:
    """Return a failure with what repairs it."""
    return Result(FAIL, detail, severity, fix, drains=drains)


def not_run(reason: str, fix: str = "") -> Result:
    """Return that a check did not run, with the reason; `fix`: the command that makes it possible."""
    return Result(NOT_RUN, reason, "", fix)


def not_applicable(reason: str, fix: str = "") -> Result:
    """Return that a check has nothing to judge on this machine, with the reason."""
    return Result(NOT_RUN, reason, "", fix, applies=False)


def one_line(text: str) -> str:
    """Return a text of a program or a log on one line, and without what controls a terminal."""
    return "".join(sign if sign.isprintable() else "?" for sign in " ".join(text.split()))


def result_data(result: Result) -> dict[str, Any]:
    """Return a result as JSON has it; `drains`: whether it makes the node unfit for jobs."""
    return {**asdict(result), "drains": result.unfit}


def read_need(data: dict[str, Any]) -> Need:
    """Return the need that `asdict` wrote; unknown keys are left out."""
    known = {field.name for field in fields(Need)}
    return Need(**{key: value for key, value in data.items() if key in known})
