"""Tier 1: compares what an image says of itself (`look`) with what was declared. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envbuild.inspector.report import SINGLES as COUNTED
from envbuild.verify.cpu import cpu_results
from envbuild.verify.cuda import cuda_results
from envbuild.verify.driver import driver_result, stubs_result
from envbuild.verify.packages import debian_results, python_results
from envbuild.verify.results import AuditResult, Status, join_items, judge, split_faults
from envbuild.verify.shared_libraries import library_results
from envbuild.verify.single_copy import single_results
from envbuild.verify.symbols import link_results

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
    were built here); `python_more`: there may be such ones that nobody named. `complete`: nothing else may be installed
    (False on a base image, which brings its own, and whose own faults are told but do not count). `singles`: library →
    how many files of it may be there at most. `sm`: "90", or "" without a GPU. `cpu`: the oldest CPU ("x86-64-v3"), or
    "" when it is not known. `sm_exempt`: path patterns of CUDA libraries that need not hold code for the GPU.
    `modules`: extension modules by dotted name. `driver_libraries`: patterns of names that only the host has.
    """

    debian: Mapping[str, str] = field(default_factory=dict)
    python: Mapping[str, str] = field(default_factory=dict)
    python_also: tuple[str, ...] = ()
    python_more: bool = False
    complete: bool = True
    singles: Mapping[str, int] = field(default_factory=lambda: dict(SINGLES))
    sm: str = ""
    cpu: str = ""
    sm_exempt: tuple[str, ...] = WITHOUT_CUBINS
    modules: tuple[str, ...] = ()
    driver_libraries: tuple[str, ...] = DRIVER_LIBRARIES


def audit(seen: Seen, expected: Expectations) -> list[AuditResult]:
    """Every comparison, in a fixed order. What nothing was declared about gives no result, so that it is not counted as
    a pass."""
    return [
        *debian_results(seen, expected.debian, expected.complete),
        *python_results(seen, expected.python, expected.python_also, expected.complete and not expected.python_more),
        *_modules(seen, expected.modules),
        *library_results(seen, expected.driver_libraries, expected.complete),
        *link_results(seen, expected.complete),
        *single_results(seen, expected.singles, expected.complete),
        driver_result(seen),
        stubs_result(seen, expected.complete),
        *cpu_results(seen, expected.cpu),
        *cuda_results(seen, expected.sm, expected.sm_exempt, expected.complete),
        *_files(seen, expected.complete),
    ]


def _modules(seen: Seen, modules: Sequence[str]) -> Iterator[AuditResult]:
    if modules:
        found = {module for dist in seen["python"] for module in dist["modules"]}
        yield judge(
            "extension modules",
            [f"{name} is not there" for name in modules if name not in found],
            f"promised: {', '.join(sorted(modules))}",
            hint="the build left them out without failing: look at its log for the reason it gives",
        )


ALWAYS = ("/bin/sh is there", "no device nodes")  # whoever brought them, the image cannot be used
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


def _files(seen: Seen, complete: bool) -> Iterator[AuditResult]:
    for name, faults, compared, hint in FILES:
        kept, note = split_faults(seen, {text: text for text in faults(seen)}, complete or name in ALWAYS)
        yield judge(name, kept, f"{compared}{note}", hint)
    unsticky = [text for text in seen["open_folders"] if not int(text.rsplit(" ", 1)[1], 8) & 0o1000]
    yield AuditResult(
        "rights",
        Status.PASS,
        f"for information: setuid or setgid: {join_items(seen['setuid'], 40) or 'none'}; "
        f"folders that everybody may write without the sticky bit: {join_items(unsticky) or 'none'}",
    )
