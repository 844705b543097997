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

from envbuild.verify.results import AuditResult, divided, judged, listed

TEGRA = frozenset({53, 62, 72, 87, 101})
NEEDED = re.compile(r"lib(torch|c10|nccl)[^/]*\.so[^/]*")
ENTRY = re.compile(r"(sm|compute)_([0-9]+)([af]?)")


def number(sm: str) -> int:
    """90 for "90", "9.0", "sm_90"."""
    return int(sm.removeprefix("sm_").rstrip("af").replace(".", ""))


def runs_on(entry: str, sm: str) -> bool:
    """Whether code of a fat binary ("sm_86", "sm_90a", "compute_80") runs on a GPU ("90" or "9.0")."""
    match = ENTRY.fullmatch(entry)
    if not match:
        return False  # LTO code is input of a link, nothing that runs
    own, target, suffix = int(match[2]), number(sm), match[3]
    if own == target:
        return True
    if suffix == "a" or own > target:
        return False
    same_family = own // 10 == target // 10
    if match[1] == "compute":
        return not suffix or same_family
    return same_family and own not in TEGRA and target not in TEGRA


def only(entries: Iterable[str], sm: str) -> bool:
    """Whether cubins are there that run on this GPU, and nothing that it cannot use (sm_80 runs on an sm_86)."""
    known = [entry for entry in entries if ENTRY.fullmatch(entry)]
    return any(entry.startswith("sm_") for entry in known) and all(runs_on(entry, sm) for entry in known)


def cuda_results(
    seen: Mapping[str, Any], sm: str, exempt_patterns: Sequence[str], complete: bool = True
) -> Iterator[AuditResult]:
    """Every library with CUDA code has some that runs on the target's GPU; what was compiled here has nothing else.

    `sm`: "90", or "" without a GPU. `exempt_patterns`: paths that need not hold code for it. Of what a base image
    brought (`complete` False) only torch and NCCL count: the rest may be tools for other GPUs.
    """
    cuda: Mapping[str, Mapping[str, int]] = seen["cuda"]
    if sm:
        able = {path for path, entries in cuda.items() if any(runs_on(entry, sm) for entry in entries)}
        unable = set(cuda) - able
        exempt = {path for path in unable if any(fnmatchcase(path, pattern) for pattern in exempt_patterns)}
        native = {path for path in able if any(runs_on(entry, sm) for entry in cuda[path] if entry[:3] == "sm_")}
        notes = [f"{len(able)} of {len(cuda)} CUDA libraries hold code for sm_{sm}"]
        if exempt:
            notes.append(f"exempt: {', '.join(sorted(exempt))}")
        if able - native:
            notes.append(f"PTX only, compiled at the first start: {', '.join(sorted(able - native))}")
        faults = {path: f"{path} holds {_entries(cuda[path])}" for path in unable - exempt}
        needed = {path: text for path, text in faults.items() if NEEDED.fullmatch(posixpath.basename(path))}
        others = {path: text for path, text in faults.items() if path not in needed}
        kept, note = divided(seen, others, complete)
        yield judged(
            f"CUDA code for sm_{sm}",
            [*needed.values(), *kept],
            "; ".join(notes) + note,
            hint="a job stops with 'no kernel image is available': build it for the target, or take another version",
        )
        own = [path for path in seen["compiled"] if path in cuda]
        if own:
            yield judged(
                f"what was compiled here has CUDA code for sm_{sm} and nothing else",
                [f"{path} holds {_entries(cuda[path])}" for path in own if not only(cuda[path], sm)],
                f"{len(own)} libraries: {', '.join(sorted({entry for path in own for entry in cuda[path]}))}",
                hint="its build did not get the target's architecture: see the recipe's arch list",
            )
    compared = seen["cuobjdump"]  # NVIDIA's own reader, where the image has it
    if compared:
        faults_read = []
        for path, told in compared.items():
            read, said = _plain(cuda.get(path, {})), _plain(told)
            if read != said:
                faults_read.append(f"{path}: it says {listed(sorted(said))}, the headers say {listed(sorted(read))}")
        yield judged(
            "cuobjdump agrees",
            faults_read,
            f"{len(compared)} libraries compared",
            "report this: the audit misread a file",
        )


def _plain(entries: Iterable[str]) -> set[str]:
    """Without what cuobjdump does not tell: it writes sm_100 for sm_100f, and nothing for link-time code."""
    return {entry.rstrip("f") for entry in entries if entry.startswith(("sm_", "compute_"))}


def _entries(entries: Mapping[str, int]) -> str:
    return ", ".join(sorted(entries)) or "none"
