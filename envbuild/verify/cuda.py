"""CUDA code against the target's GPU.

A cubin runs on its own compute-capability major with an equal or higher minor (CUDA C++ Programming Guide, "Binary
compatibility"; not across the line between desktop and Tegra); one with suffix ``a`` runs on exactly its own, one with
``f`` within its family. PTX is compiled by the driver for anything that is not older.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from envbuild.verify.declared_contents import Expectations
from envbuild.verify.results import AuditResult, join_items, judge, split_faults

Cuda = Mapping[str, Mapping[str, int]]  # library → what its fat binaries hold, and how many of each

TEGRA = frozenset({53, 62, 72, 87, 101})
NEEDED = re.compile(r"lib(torch|c10|nccl)[^/]*\.so[^/]*")
ENTRY = re.compile(r"(sm|compute)_([0-9]+)([af]?)")


def sm_number(sm: str) -> int:
    """Return 90 for "90", "9.0", "sm_90"."""
    return int(sm.removeprefix("sm_").rstrip("af").replace(".", ""))


def runs_on(entry: str, sm: str) -> bool:
    """Return whether code of a fat binary ("sm_86", "sm_90a", "compute_80") runs on a GPU ("90" or "9.0")."""
    match = ENTRY.fullmatch(entry)
    if not match:
        return False  # LTO code is input of a link, nothing that runs
    own, target, suffix = int(match[2]), sm_number(sm), match[3]
    if own == target:
        return True
    if suffix == "a" or own > target:
        return False
    same_family = own // 10 == target // 10
    if match[1] == "compute":
        return not suffix or same_family
    return same_family and own not in TEGRA and target not in TEGRA


def runs_only_on(entries: Iterable[str], sm: str) -> bool:
    """Return whether there are cubins that run on this GPU, and none that it cannot use (sm_80 runs on an sm_86)."""
    known = [entry for entry in entries if ENTRY.fullmatch(entry)]
    return any(entry.startswith("sm_") for entry in known) and all(runs_on(entry, sm) for entry in known)


def cuda_results(report: Mapping[str, Any], expected: Expectations) -> Iterator[AuditResult]:
    """Yield whether every library with CUDA code has some that runs on the target's GPU, and what was compiled here has
    nothing else.

    Of a base image's own files (`complete` False) only torch and NCCL count: the rest may be tools for other GPUs.
    """
    cuda: Cuda = report["cuda"]
    if sm := expected.sm:
        yield target_result(report, sm, expected.sm_exempt, expected.complete)
        if own := [path for path in report["compiled"] if path in cuda]:
            yield own_result({path: cuda[path] for path in own}, sm)
    if cuobjdump := report["cuobjdump"]:  # by NVIDIA's own reader, where the image has it
        yield reader_result(cuda, cuobjdump)


def target_result(report: Mapping[str, Any], sm: str, exempt_patterns: Sequence[str], complete: bool) -> AuditResult:
    """Return whether every library has code that runs on the target's GPU."""
    cuda: Cuda = report["cuda"]
    able = {path for path, entries in cuda.items() if any(runs_on(entry, sm) for entry in entries)}
    unable = set(cuda) - able
    exempt = {path for path in unable if any(fnmatchcase(path, pattern) for pattern in exempt_patterns)}
    native = {path for path in able if any(runs_on(entry, sm) for entry in cuda[path] if entry[:3] == "sm_")}
    notes = [f"{len(able)} of {len(cuda)} CUDA libraries contain code for sm_{sm}"]
    if exempt:
        notes.append(f"exempt: {', '.join(sorted(exempt))}")
    if able - native:
        notes.append(f"PTX only, compiled at the first start: {', '.join(sorted(able - native))}")
    faults = {path: f"{path} contains {_entries(cuda[path])}" for path in unable - exempt}
    needed = {path: text for path, text in faults.items() if NEEDED.fullmatch(posixpath.basename(path))}
    others = {path: text for path, text in faults.items() if path not in needed}
    counted, note = split_faults(report, others, complete)
    return judge(
        f"CUDA code for sm_{sm}",
        [*needed.values(), *counted],
        "; ".join(notes) + note,
        hint="a job stops with 'no kernel image is available': build it for the target, or take another version",
    )


def own_result(own: Cuda, sm: str) -> AuditResult:
    """Return whether what was compiled for this image has code for the target's GPU and nothing else."""
    return judge(
        f"what was compiled here has CUDA code for sm_{sm} and nothing else",
        [f"{path} contains {_entries(entries)}" for path, entries in own.items() if not runs_only_on(entries, sm)],
        f"{len(own)} libraries: {', '.join(sorted({entry for entries in own.values() for entry in entries}))}",
        hint="its build did not get the target's architecture: see the recipe's arch list",
    )


def reader_result(cuda: Cuda, cuobjdump: Mapping[str, Mapping[str, Iterable[str]]]) -> AuditResult:
    """Return whether cuobjdump reads the same out of the files as the audit did: what the driver is given, beside PTX
    of relocatable objects, which it lists with another option and the audit counts where each object has it."""
    faults = []
    for path, listed in cuobjdump.items():
        read, code, ptx = (_comparable(entries) for entries in (cuda.get(path, {}), listed["code"], listed["ptx"]))
        if not code <= read <= code | ptx:
            faults.append(
                f"{path}: it reports {join_items(sorted(code))}, the headers contain {join_items(sorted(read))}"
            )
    compared = f"{len(cuobjdump)} libraries compared"
    return judge("cuobjdump agrees", faults, compared, "report this: the audit misread a file")


def _comparable(entries: Iterable[str]) -> set[str]:
    """Return entries as cuobjdump reports them: it writes sm_100 for sm_100f, and nothing for link-time code."""
    return {entry.rstrip("f") for entry in entries if entry.startswith(("sm_", "compute_"))}


def _entries(entries: Mapping[str, int]) -> str:
    return ", ".join(sorted(entries)) or "none"
