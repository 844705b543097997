"""The failures of a node for the health check of a site: Slurm's HealthCheckProgram, or NHC.

Lines are printed, nothing is executed. Only failures that an administrator must repair, or hardware, drain a node.
Hardware is named first: Slurm's reason is short. A node that gets no jobs for a reason keeps that reason."""

from __future__ import annotations

import shlex

from .examination import Examination
from .facts.place import LOGIN, OTHER
from .model import DRAINING, HARDWARE, Result, one_line

KINDS = ("nhc", "healthcheck")
LONGEST = 180  # characters of a reason
LONGEST_LINE = 1000  # of a line, with the commands that repair the failure


def health_lines(found: Examination, kind: str, only_hardware: bool = False) -> list[str]:
    """Return the lines for one of `KINDS`: none for a healthy node. `only_hardware`: leave other failures out."""
    draining = (HARDWARE,) if only_hardware else DRAINING
    failures = [result for result in found.failures if result.severity in draining and result.drains]
    if not failures:
        return []
    failures.sort(key=lambda result: result.severity != HARDWARE)
    if kind == "nhc":
        return [f"envbuild_doctor: {reason_of(result)}" for result in failures]
    if found.has_reason or found.facts["place"] in (LOGIN, OTHER):  # no node of Slurm
        return [reason_of(result) for result in failures]
    reason = f"envbuild doctor: {'; '.join(f'{result.check}: {result.detail}' for result in failures)}"
    name = one_line(found.facts["slurm_node"])
    # a name that is not known, as in a container, is to be written: a shell does not run that line
    start = f"scontrol update NodeName={shlex.quote(name)}" if name else "# scontrol update NodeName=NODE"
    command = f"{start} State=DRAIN Reason={shlex.quote(clean(reason))}"
    return [*(reason_of(result) for result in failures), command]


def reason_of(result: Result) -> str:
    """Return a failure on one line."""
    return clean(f"{result.check}: {result.detail} ({result.severity}; {result.fix})", LONGEST_LINE)


def clean(text: str, longest: int = LONGEST) -> str:
    """Return a text on one line, in ASCII, not too long: by itself, for a reason of Slurm."""
    line = one_line(text).encode("ascii", "replace").decode().replace("'", "")
    return line if len(line) <= longest else line[: longest - 3] + "..."
