"""The failures of a node for the health check of a site: Slurm's HealthCheckProgram, or NHC.

Lines are printed, nothing is executed. Only failures that an administrator must repair, or hardware, drain a node.
Hardware is named first: Slurm's reason is short. A node that gets no jobs for a reason keeps that reason; one that was
drained for the doctor's own is resumed, as NHC does with nodes of its own notes (mej/nhc, node-mark-online)."""

from __future__ import annotations

import re
import shlex

from .examination import Examination
from .facts.place import LOGIN, OTHER
from .model import HARDWARE, PASS, Result, one_line

KINDS = ("nhc", "healthcheck")
LONGEST = 180  # characters of a reason
LONGEST_LINE = 1000  # of a line, with the commands that repair the failure
DEVICES = ("GPU", "network", "Neuron")  # groups of checks
# checks whose faults show under load, or come and go: a drained node is idle, so that an administrator resumes it
PASSING = {"link-errors", "gpu-pcie", "files"}
SHORTEST = 16  # characters of a detail in a reason
PREFIX = "envbuild doctor: "  # of its own reasons
NAMED = re.compile(r"(?:^|; )([a-z][a-z0-9-]*): ")  # the checks in a reason
MORE = re.compile(r"; and \d+ more\b")
WRITTEN = re.compile(r" \[[^\[\]]*@[^\[\]]*\]$")  # by Slurm: [root@2026-11-28T10:00:00]
END = " (until repaired)"  # of its own reasons: one to which an administrator added words does not end so


def draining_failures(found: Examination, *, only_hardware: bool = False) -> list[Result]:
    """Return the failures that make a node unfit for jobs, hardware first. `only_hardware`: leave others out."""
    unfit = [result for result in found.results if result.unfit]
    failures = [result for result in unfit if result.severity == HARDWARE or not only_hardware]
    return sorted(failures, key=lambda result: result.severity != HARDWARE)


def health_lines(found: Examination, kind: str, only_hardware: bool = False) -> list[str]:
    """Return the lines for one of `KINDS`: none for a healthy node."""
    failures = draining_failures(found, only_hardware=only_hardware)
    if not failures:
        return [resume_command(found)] if kind == "healthcheck" and is_repaired(found) else []
    if kind == "nhc":
        return [f"envbuild_doctor: {reason_of(result)}" for result in failures]
    if found.has_reason or found.facts["place"] in (LOGIN, OTHER):  # no node of Slurm
        return [reason_of(result) for result in failures]
    name = one_line(found.facts["slurm_node"])
    # a name that is not known, as in a container, is to be written: a shell does not run that line
    start = f"scontrol update NodeName={shlex.quote(name)}" if name else "# scontrol update NodeName=NODE"
    command = f"{start} State=DRAIN Reason={shlex.quote(drain_reason(failures))}"
    return [*(reason_of(result) for result in failures), command]


def unknown_line(found: Examination) -> str:
    """Return a line that names the checks of devices that are not known, or "": silence is not a pass."""
    names = dict.fromkeys(result.check for result in found.unknown if result.group in DEVICES)
    return f"envbuild doctor: not known: {', '.join(names)}" if names else ""


def resume_command(found: Examination) -> str:
    """Return the command for a node that the doctor has drained."""
    return f"scontrol update NodeName={shlex.quote(one_line(found.facts['slurm_node']))} State=RESUME"


def is_repaired(found: Examination) -> bool:
    """Return whether the doctor has drained this node for faults that last, and each check that its reason names
    passes now: one that did not run, or that fails without draining (no target is named), states nothing."""
    reason = WRITTEN.sub("", found.drained_for)
    whole = reason.startswith(PREFIX) and reason.endswith(END)
    if not whole or MORE.search(reason) or not found.facts["slurm_node"]:
        return False
    named = set(NAMED.findall(reason[len(PREFIX) :]))
    passed = all({one.status for one in found.results if one.check == name} == {PASS} for name in named)
    return bool(named) and named.isdisjoint(PASSING) and passed


def drain_reason(failures: list[Result]) -> str:
    """Return the reason of a drain, with the name of each check; their details are cut, and then checks left out."""
    for count in range(len(failures), 0, -1):
        more = f"; and {len(failures) - count} more" if count < len(failures) else ""
        names = sum(len(result.check) + len(": ; ") for result in failures[:count])
        room = LONGEST - len(PREFIX) - len(more) - len(END) - names
        whole = [clean(result.detail, LONGEST) for result in failures[:count]]
        longest = LONGEST if sum(map(len, whole)) <= room else room // count
        if longest >= SHORTEST or count == 1:
            pairs = zip(failures, whole)  # noqa: B905
            parts = [
                f"{result.check}: {clean(detail.replace('; ', ', '), max(longest, 4))}" for result, detail in pairs
            ]
            return clean(PREFIX + "; ".join(parts) + more, LONGEST - len(END)) + END
    return PREFIX.strip(": ")


def reason_of(result: Result) -> str:
    """Return a failure on one line."""
    return clean(f"{result.check}: {result.detail} ({result.severity}; {result.fix})", LONGEST_LINE)


def clean(text: str, longest: int = LONGEST) -> str:
    """Return a text on one line, in ASCII, not too long: by itself, for a reason of Slurm."""
    line = one_line(text).encode("ascii", "replace").decode().replace("'", "")
    return line if len(line) <= longest else line[: longest - 3] + "..."
