"""Match of values with constraints."""

from __future__ import annotations

import re
from functools import lru_cache

from envbuild.matrix.facts import version
from envbuild.matrix.facts.model import Component, Constraint, Term

# CUDA 12.8 and 12.9 call sm_101 what is sm_110 from 13.0 on, the same chip (Dao-AILab/flash-attention, setup.py).
# No source states whether a driver of the new name loads code of the old one.
RENAMED = {(10, 1): (11, 0)}
# "Binary compatibility is supported only for the desktop … the binary compatibility between desktop and Tegra is not
# supported" (CUDA C++ Programming Guide, Binary Compatibility): code for a GPU of Tegra runs on it alone.
TEGRA = {(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0)}
ORDER = (">=", ">", "<=", "<")


@lru_cache(maxsize=1 << 12)
def fold_name(name: str) -> str:
    """Return a name without what is spelled differently: case, blanks, ``- _ / . :`` and the maker's name."""
    plain = re.sub(r"[\s\-_/.:]+", "", name.casefold())
    return plain.replace("nvidia", "") or plain


def matches(component: Component, wanted: Constraint, value: str | None) -> bool | None:
    """Return whether `wanted` allows `value` (None: absent); None where it cannot be ordered, as for NGC's
    pre-releases."""
    answer: bool | None = False
    for terms in wanted.alternatives:
        verdict: bool | None = True
        for term in terms:
            one = holds(component.kind, term, value)
            if one is False:
                break
            verdict = verdict and one
        else:
            if verdict:
                return True
            answer = None
    return answer


def holds(kind: str, term: Term, value: str | None) -> bool | None:
    """Return whether a component of this kind with `value` (None: absent) meets one term; None where it cannot be
    ordered."""
    op, operand = term.op, term.operand
    if op == "none" or value is None:
        return op == "none" and value is None
    if op == "any":
        return True
    if kind == "name":
        if op == "in":
            return fold_name(value).startswith(fold_name(operand))
        return (value == operand) is (op != "!=")
    if kind == "sm":
        return _runs(op, operand, value)
    if op in ORDER:
        return version.compare(value, op, operand)
    return version.begins_with(value, operand) if op == "in" else version.is_same(value, operand) is (op == "==")


def _runs(op: str, operand: str, value: str) -> bool | None:
    """Return whether a GPU runs the code. A cubin runs on its own major version with the same or a higher minor (of
    Tegra: on exactly its own), PTX on everything later; ``a`` on exactly its own, ``f`` on its family (CUDA programming
    guide, compute capabilities; PTX ISA, .target)."""
    gpu, wanted = _parse_capability(value), _parse_capability(operand.rstrip("af"))
    if op == "cubin" and RENAMED.get(wanted) == gpu:
        return None
    if op in ORDER:
        return {">=": gpu >= wanted, ">": gpu > wanted, "<=": gpu <= wanted, "<": gpu < wanted}[op]
    if op in ("==", "!="):
        return (gpu == wanted) is (op == "==")
    if operand.endswith("a") or (wanted in TEGRA and (op == "cubin" or operand.endswith("f"))):
        return gpu == wanted
    if op == "ptx" and not operand.endswith("f"):
        return gpu >= wanted
    return gpu[0] == wanted[0] and gpu >= wanted


@lru_cache(maxsize=1 << 10)
def _parse_capability(capability: str) -> tuple[int, int]:
    major, minor = capability.split(".")
    return int(major), int(minor)
