"""``scontrol show node``: a node of Slurm as KEY=VALUE, on one line (-o) or several.

Values contain blanks (OS, Reason); `State` has several parts; a typed and an untyped GRES count the same devices."""

from __future__ import annotations

import re

FAILING = (
    "DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL", "FAILING", "ERROR", "NOT_RESPONDING", "UNKNOWN", "INVALID",
    "INVALID_REG",
)  # fmt: skip
# A node gets no jobs in these either, and nothing is wrong with it (scontrol(1), node states)
WAITING = (
    "BLOCKED", "FUTURE", "MAINT", "MAINTENANCE", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN",
    "POWER_UP", "REBOOT_ISSUED", "REBOOT_REQUESTED", "RESERVED",
)  # fmt: skip
PARTITION = re.compile(r"gpu:[^:,()]*\dg\.\d+gb")  # of MIG: gpu:a100_1g.10gb:56
GPU = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)")  # gpu:8, gpu:h100:8(S:0-1); not gpu_mem:16280
KEY = re.compile(r"(?:^|\s)([A-Z][A-Za-z]*(?:_label)?)=")


def parse_node(text: str) -> dict[str, str]:
    """Return the values of the first node."""
    first = re.split(r"\n(?=NodeName=)", text.strip())[0]
    marks = list(KEY.finditer(first))
    ends = [mark.start() for mark in marks[1:]] + [len(first)]
    values: dict[str, str] = {}
    for mark, end in zip(marks, ends):  # noqa: B905
        values.setdefault(mark[1], first[mark.end() : end].strip())
    return values


def states(node: dict[str, str]) -> list[str]:
    """Return the parts of a node's state without their marks; ``*`` is that of a node that does not respond."""
    text = node.get("State", "").upper()
    parts = [part.rstrip("*~#!%$@^-") for part in text.split("+") if part]
    return [*parts, "NOT_RESPONDING"] if "*" in text else parts


def gpus_of(node: dict[str, str]) -> int | None:
    """Return the number of GPUs that Slurm has configured; None if the text has no line about it.

    CfgTRES counts them only where Slurm accounts for GPUs (AccountingStorageTRES); Gres has them everywhere."""
    if "CfgTRES" not in node:
        return None
    parts = dict(part.partition("=")[::2] for part in node["CfgTRES"].split(","))
    untyped = parts.get("gres/gpu", "")
    typed = [value for key, value in parts.items() if key.startswith("gres/gpu:")]
    if not untyped and not typed:
        return sum(int(number) for number in GPU.findall(node.get("Gres", "")))
    return int(untyped) if untyped.isdigit() else sum(int(value) for value in typed if value.isdigit())
