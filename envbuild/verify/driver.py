"""The driver's own libraries: only the host has them, and the loader finds no stub of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from envbuild.verify.declared_contents import Expectations
from envbuild.verify.results import AuditResult, judge, split_faults

Report = Mapping[str, Any]

STUBS = re.compile(r"(^|/)stubs(/|$)")


def driver_results(report: Report, expected: Expectations) -> Iterator[AuditResult]:
    """Yield whether the driver is the host's alone, and whether stubs of it are out of the loader's reach."""
    yield driver_result(report)
    yield stubs_result(report, expected.complete)


def driver_result(report: Report) -> AuditResult:
    """Return whether the driver comes from the host; a stub that the loader finds would hide it."""
    faults = [f"{name} is {path}" for name, path in report["driver"].items() if path]
    for path, elf in report["elves"].items():
        for name, target in elf.get("needed", {}).items():
            if name in report["driver"] and target:
                faults.append(f"{path} takes {name} from {target}")
    return judge(
        "the driver is the host's",
        faults,
        f"{', '.join(sorted(report['driver']))} are not on the loader's path",
        "take the stub folder out of ld.so.conf.d, LD_LIBRARY_PATH and RPATH",
    )


def stubs_result(report: Report, complete: bool) -> AuditResult:
    """Return whether no search path of the loader contains a folder of driver stubs (.../stubs): they are for
    linking."""
    search = report["search"]
    faults = {folder: f"{folder} is in ld.so.cache" for folder in search["cache"] if STUBS.search(folder)}
    ways = 0
    counts = [f"{folder} is in LD_LIBRARY_PATH" for folder in search["environment"] if STUBS.search(folder)]
    for path, elf in report["elves"].items():
        folders = [*elf.get("rpath", ()), *elf.get("runpath", ())]
        ways += bool(folders)
        for folder in filter(STUBS.search, folders):
            faults[path] = f"{path} searches {folder} (RPATH)"
    counted, note = split_faults(report, faults, complete)
    compared = f"{len(search['cache'])} folders of ld.so.cache, {len(search['environment'])} of LD_LIBRARY_PATH, "
    return judge(
        "stub libraries are on no path of the loader",
        [*counts, *counted],
        f"{compared}RPATH of {ways} files{note}",
        "a stub that is found hides the host's driver: take the folder out of ld.so.conf.d and LD_LIBRARY_PATH, and "
        "link without -rpath into it",
    )
