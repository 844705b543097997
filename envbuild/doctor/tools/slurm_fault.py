"""Causes for which a program of Slurm fails. srun, scontrol and sinfo print the same texts, the cause first or last."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..processes import Output

SETTINGS, MUNGE, UNKNOWN_NODE, VERSIONS, CONTROLLER = "settings", "munge", "unknown-node", "versions", "controller"
ASK_CONTROLLER = "scontrol ping; on the controller: systemctl status slurmctld munge"
CAUSES = (  # the cause, its signs, what it is, what repairs it
    (
        SETTINGS,
        re.compile(r"[Cc]ould not establish a configuration source|slurm\.conf.*(?:No such file|[Uu]nable to)"),
        "Slurm's programs find no slurm.conf here",
        "export SLURM_CONF=/path/of/slurm.conf; or slurm.conf of the controller in /etc/slurm",
    ),
    (
        MUNGE,
        re.compile(r"[Mm]unge (?:encode|decode) failed|[Mm]unge credential|munge\.socket"),
        "munge of this machine does not answer",
        "on this machine: systemctl restart munge; systemctl status munge; the controller's munge.key, and its clock",
    ),
    (
        UNKNOWN_NODE,
        re.compile(r"^Node \S+ not found|Invalid node name"),
        "Slurm has no node of this name",
        "export SLURMD_NODENAME=NAME; its name: scontrol -o show nodes | grep NodeHostName=$(hostname -s)",
    ),
    (
        VERSIONS,
        re.compile(r"[Ii]ncompatible versions of client and server"),
        "Slurm of this machine and of the controller are too far apart",
        "sinfo --version here and on the controller: at most two releases apart, the controller's the newer",
    ),
    (
        CONTROLLER,
        re.compile(r"[Uu]nable to contact slurm controller|controller in standby mode"),
        "Slurm's controller does not answer",
        ASK_CONTROLLER,
    ),
)


class SlurmFault(NamedTuple):
    """The failure of a program. `cause`: one of those, or "" for another one, which has no `fix`."""

    detail: str
    fix: str = ""
    cause: str = ""


def slurm_fault(output: Output, command: str) -> SlurmFault | None:
    """Return why a program of Slurm has no usable output, or None if it has."""
    if not output.fault and not output.code:
        return None
    lines = [line.strip() for line in (output.errors + "\n" + output.text).splitlines()]
    for cause, sign, detail, fix in CAUSES:
        for line in reversed(lines):
            if sign.search(line):
                return SlurmFault(f"{detail}: {line[:200]}", fix, cause)
    if output.fault:
        return SlurmFault(output.fault, ASK_CONTROLLER if output.code not in (126, 127) else "")  # hangs
    return SlurmFault(output.failure(command))
