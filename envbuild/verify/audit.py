"""Tier 1, the audit: compares the content of an image (`inspect_image`) with the declared content. Pure."""

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

Report = Mapping[str, Any]

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
    """The declared content of an image.

    `debian`, `python`: name → version.
    `python_also`: names of distributions without a declared version (wheels that were built here).
    `python_more`: there may be further ones that are not named.
    `complete`: nothing else may be installed (False on a base image, which has its own packages, and whose own faults
    are reported but do not count).
    `singles`: library → how many files of it may exist at most.
    `sm`: "90", or "" without a GPU.
    `cpu`: the oldest CPU ("x86-64-v3"), or "" when it is not known.
    `sm_exempt`: path patterns of CUDA libraries that need not contain code for the GPU.
    `modules`: extension modules by dotted name.
    `driver_libraries`: patterns of names that only the host has.
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


def audit(report: Report, expected: Expectations) -> list[AuditResult]:
    """Return the result of every comparison, in a fixed order. A comparison without a declaration has no result, so
    that it does not count as a pass."""
    return [
        *debian_results(report, expected.debian, expected.complete),
        *python_results(report, expected.python, expected.python_also, expected.complete and not expected.python_more),
        *_modules(report, expected.modules),
        *library_results(report, expected.driver_libraries, expected.complete),
        *link_results(report, expected.complete),
        *single_results(report, expected.singles, expected.complete),
        driver_result(report),
        stubs_result(report, expected.complete),
        *cpu_results(report, expected.cpu),
        *cuda_results(report, expected.sm, expected.sm_exempt, expected.complete),
        *_files(report, expected.complete),
    ]


def _modules(report: Report, modules: Sequence[str]) -> Iterator[AuditResult]:
    if modules:
        found = {module for dist in report["python"] for module in dist["modules"]}
        yield judge(
            "extension modules",
            [f"{name} is not there" for name in modules if name not in found],
            f"promised: {', '.join(sorted(modules))}",
            hint="the build left them out without failing: its log has the reason",
        )


ALWAYS = ("/bin/sh is there", "no device nodes")  # also if the base image has them: the image cannot be used
FILES: tuple[tuple[str, Callable[[Report], Sequence[str]], str, str], ...] = (
    (
        "compiled Python files fit their sources",
        lambda report: [*report["pyc"]["stale"], *report["pyc"]["damaged"]],
        "time and size in each header",
        "something changed file times after installation: export SOURCE_DATE_EPOCH in every step that installs Python",
    ),
    (
        "/bin/sh is there",
        lambda report: [] if report["shell"] else ["no executable /bin/sh"],
        "enroot and pyxis start images with it",
        "add debian-packages: [dash] to the spec's layers",
    ),
    (
        "no host keys of ssh",
        lambda report: report["host_keys"],
        "/etc/ssh/ssh_host_*",
        "every container of the image would have the same identity: remove them in the step",
    ),
    (
        "no device nodes",
        lambda report: report["devices"],
        "all folders but /dev",
        "unsquashfs cannot make them without root: remove them in the step",
    ),
    (
        "nothing is left over",
        lambda report: report["leftovers"],
        "the list of files that units remove",
        "remove them in the step that makes them",
    ),
)


def _files(report: Report, complete: bool) -> Iterator[AuditResult]:
    for name, faults, compared, hint in FILES:
        counted, note = split_faults(report, {text: text for text in faults(report)}, complete or name in ALWAYS)
        yield judge(name, counted, f"{compared}{note}", hint)
    unsticky = [text for text in report["open_folders"] if not int(text.rsplit(" ", 1)[1], 8) & 0o1000]
    yield AuditResult(
        "rights",
        Status.PASS,
        f"for information: setuid or setgid: {join_items(report['setuid'], 40) or 'none'}; "
        f"folders that everybody may write without the sticky bit: {join_items(unsticky) or 'none'}",
    )
