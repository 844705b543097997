"""Tier 1: compares what an image says of itself (`look`) with what was declared. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from envbuild.verify.cuda import exactly, runs_on
from envbuild.verify.inside.seen import SINGLES as COUNTED
from envbuild.verify.libraries import driver_result, library_results, single_results
from envbuild.verify.packages import debian_results, python_results
from envbuild.verify.results import AuditResult, Status, judged, listed

Seen = Mapping[str, Any]

DRIVER_LIBRARIES = (
    "libcuda.so.1",
    "libcudadebugger.so.1",
    "libnvidia-*.so.*",
    "libnvcuvid.so.1",
    "libnvoptix.so.1",
)
SINGLES = dict.fromkeys(COUNTED, 1)
# Their kernels are made at run time from link-time code; the one cubin inside is none of them (measured in 12.2).
WITHOUT_CUBINS = ("*/libcufft.so.*", "*/libcufftw.so.*")


@dataclass(frozen=True, slots=True)
class Expectations:
    """What must be inside.

    `debian`, `python`: name → version. `python_also`: names of distributions whose version nobody declared (wheels that
    were built here). `complete`: nothing else may be installed (False on a base image that brings its own). `singles`:
    library → how many files of it may be there at most. `sm`: "90", or "" without a GPU. `arch_files`: path patterns
    (``*/fused_adam_op*.so``) or ``dist:NAME`` whose CUDA code must be for exactly that GPU. `sm_exempt`: path patterns
    of CUDA libraries that need not hold code for it. `modules`: extension modules by dotted name. `driver_libraries`:
    patterns of names that only the host has.
    """

    debian: Mapping[str, str] = field(default_factory=dict)
    python: Mapping[str, str] = field(default_factory=dict)
    python_also: tuple[str, ...] = ()
    complete: bool = True
    singles: Mapping[str, int] = field(default_factory=lambda: dict(SINGLES))
    sm: str = ""
    arch_files: tuple[str, ...] = ()
    sm_exempt: tuple[str, ...] = WITHOUT_CUBINS
    modules: tuple[str, ...] = ()
    driver_libraries: tuple[str, ...] = DRIVER_LIBRARIES


def audit(seen: Seen, expected: Expectations) -> list[AuditResult]:
    """Every comparison, in a fixed order. What nothing was declared about gives no result, so that it is not counted as
    a pass."""
    return [
        *debian_results(seen, expected.debian, expected.complete),
        *python_results(seen, expected.python, expected.python_also, expected.complete),
        *_modules(seen, expected.modules),
        *library_results(seen, expected.driver_libraries),
        *single_results(seen, expected.singles),
        driver_result(seen),
        *_cuda(seen, expected),
        *_files(seen),
    ]


def _modules(seen: Seen, modules: Sequence[str]) -> Iterator[AuditResult]:
    if modules:
        found = {module for dist in seen["python"] for module in dist["modules"]}
        yield judged(
            "extension modules",
            [f"{name} is not there" for name in modules if name not in found],
            f"promised: {', '.join(sorted(modules))}",
            hint="the build left them out without failing: look at its log for the reason it gives",
        )


def _cuda(seen: Seen, expected: Expectations) -> Iterator[AuditResult]:
    """Needs a target with a GPU; what `arch_files` name must hold CUDA code at all."""
    cuda: Mapping[str, Mapping[str, int]] = seen["cuda"]
    if expected.sm:
        able = {path for path, entries in cuda.items() if any(runs_on(entry, expected.sm) for entry in entries)}
        unable = set(cuda) - able
        exempt = {path for path in unable if any(fnmatchcase(path, pattern) for pattern in expected.sm_exempt)}
        native = {
            path for path in able if any(runs_on(entry, expected.sm) for entry in cuda[path] if entry[:3] == "sm_")
        }
        notes = [f"{len(able)} of {len(cuda)} CUDA libraries hold code for sm_{expected.sm}"]
        if exempt:
            notes.append(f"exempt: {', '.join(sorted(exempt))}")
        if able - native:
            notes.append(f"PTX only, compiled at the first start: {', '.join(sorted(able - native))}")
        yield judged(
            f"CUDA code for sm_{expected.sm}",
            [f"{path} holds {_entries(cuda[path])}" for path in unable - exempt],
            "; ".join(notes),
            hint="a job stops with 'no kernel image is available': build it for the target, or take another version",
        )
    for pattern in expected.arch_files if expected.sm else ():
        matches = [path for path in sorted(cuda) if _matches(seen, path, pattern)]
        faults = [f"{path} holds {_entries(cuda[path])}" for path in matches if not exactly(cuda[path], expected.sm)]
        yield judged(
            f"{pattern}: sm_{expected.sm} and nothing else",
            faults if matches else [f"no library with CUDA code matches {pattern}"],
            f"{len(matches)} libraries compared",
            hint="its build did not get the target's architecture: see the recipe's arch list",
        )
    compared = seen["cuobjdump"]  # NVIDIA's own reader, where the image has it
    if compared:
        faults = []
        for path, told in compared.items():
            read, said = _plain(cuda.get(path, {})), _plain(told)
            if read != said:
                faults.append(f"{path}: it says {listed(sorted(said))}, the headers say {listed(sorted(read))}")
        yield judged(
            "cuobjdump agrees", faults, f"{len(compared)} libraries compared", "report this: the audit misread a file"
        )


def _plain(entries: Iterable[str]) -> set[str]:
    """Without what cuobjdump does not tell: it writes sm_100 for sm_100f, and nothing for link-time code."""
    return {entry.rstrip("f") for entry in entries if entry.startswith(("sm_", "compute_"))}


def _entries(entries: Mapping[str, int]) -> str:
    return ", ".join(sorted(entries)) or "none"


def _matches(seen: Seen, path: str, pattern: str) -> bool:
    if pattern.startswith("dist:"):
        owner = str(seen["elves"].get(path, {}).get("dist", ""))
        return owner.lower().replace("_", "-") == pattern.removeprefix("dist:").lower().replace("_", "-")
    return fnmatchcase(path, pattern)


FILES: tuple[tuple[str, Callable[[Seen], Sequence[str]], str, str], ...] = (
    (
        "compiled Python files fit their sources",
        lambda seen: [*seen["pyc"]["stale"], *seen["pyc"]["damaged"]],
        "time and size in each header",
        "something changed file times after installation: export SOURCE_DATE_EPOCH in every step that installs Python",
    ),
    (
        "/bin/sh is there",
        lambda seen: [] if seen["shell"] else ["no executable /bin/sh"],
        "enroot and pyxis start images with it",
        "add debian-packages: [dash] to the spec's layers",
    ),
    (
        "no host keys of ssh",
        lambda seen: seen["host_keys"],
        "/etc/ssh/ssh_host_*",
        "every container of the image would have the same identity: remove them in the step",
    ),
    (
        "no device nodes",
        lambda seen: seen["devices"],
        "all folders but /dev",
        "unsquashfs cannot make them without root: remove them in the step",
    ),
    (
        "nothing is left over",
        lambda seen: seen["leftovers"],
        "the list of files that units remove",
        "remove them in the step that makes them",
    ),
)


def _files(seen: Seen) -> Iterator[AuditResult]:
    for name, faults, compared, hint in FILES:
        yield judged(name, faults(seen), compared, hint)
    unsticky = [text for text in seen["open_folders"] if not int(text.rsplit(" ", 1)[1], 8) & 0o1000]
    yield AuditResult(
        "rights",
        Status.PASS,
        f"for information: setuid or setgid: {listed(seen['setuid'], 40) or 'none'}; "
        f"folders that everybody may write without the sticky bit: {listed(unsticky) or 'none'}",
    )
