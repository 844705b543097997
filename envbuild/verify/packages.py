"""Installed packages against the lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from envbuild.spec.recipe import VENV
from envbuild.verify.contents.metadata import normalize_name
from envbuild.verify.declared_contents import Expectations
from envbuild.verify.results import AuditResult, join_items, judge

REBUILD = "the image differs from its lock: build it again with --rebuild, and report it if it happens again"


def debian_results(report: Mapping[str, Any], expected: Expectations) -> Iterator[AuditResult]:
    """Yield the comparison of names and versions with dpkg's status file; no package may be half installed."""
    declared, complete = expected.debian, expected.complete
    if declared or (complete and report["debian"]):
        yield judge(
            "Debian packages are those of the lock",
            differences(declared, report["debian"], complete),
            f"{len(declared)} declared, {len(report['debian'])} installed",
            REBUILD,
        )
    yield judge(
        "Debian packages are configured",
        report["debian_broken"],
        f"state of {len(report['debian'])} packages",
        "a maintainer script failed: see the log of the unit 'debian'",
    )


def python_results(report: Mapping[str, Any], expected: Expectations) -> Iterator[AuditResult]:
    """Yield the comparison with dist-info folders: names, versions, and that every file of a RECORD exists and belongs
    to one distribution only."""
    declared, also = expected.python, expected.python_also
    complete = expected.complete and not expected.python_more
    dists = report["python"]
    if declared or also or (complete and dists):
        # on a base image one name may be in two folders: the venv's is first on Python's path
        ordered = sorted(dists, key=lambda dist: dist["site"].startswith(f"{VENV}/"))
        versions = {normalize_name(dist["name"]): dist["version"] for dist in ordered}
        places = Counter((normalize_name(dist["name"]), dist["site"]) for dist in dists)
        built = {normalize_name(name) for name in also}
        faults = differences(
            {normalize_name(name): version for name, version in declared.items()},
            {name: version for name, version in versions.items() if name not in built},
            complete,
            same=is_same_version,
        )
        faults += [f"{name} is not installed" for name in built - set(versions)]
        faults += [f"{name} is installed {count} times" for (name, _), count in places.items() if count > 1]
        yield judge(
            "Python packages are those of the lock",
            faults,
            f"{len(declared) + len(built)} declared, {len(dists)} installed",
            REBUILD,
        )
    if dists:
        yield judge(
            "Python packages are whole",
            [f"{dist['name']}: {join_items(dist['missing'], 3)} missing" for dist in dists if dist["missing"]],
            f"files of {len(dists)} RECORDs",
            REBUILD,
        )
        yield judge(
            "no file belongs to two Python packages",
            [f"{clash['path']}: {' and '.join(clash['dists'])}" for clash in report["clashes"]],
            f"files of {len(dists)} RECORDs",
            "the one installed last won; leave one of the two out",
        )


def module_results(report: Mapping[str, Any], expected: Expectations) -> Iterator[AuditResult]:
    """Yield whether the extension modules that recipes promise are files of the installed packages."""
    if expected.modules:
        found = {module for dist in report["python"] for module in dist["modules"]}
        yield judge(
            "extension modules",
            [f"{name} is not there" for name in expected.modules if name not in found],
            f"promised: {', '.join(sorted(expected.modules))}",
            hint="the build left them out without failing: its log has the reason",
        )


def differences(
    declared: Mapping[str, str],
    installed: Mapping[str, str],
    complete: bool,
    same: Callable[[str, str], bool] = lambda left, right: left == right,
) -> list[str]:
    """Return what is missing, has another version, or (when `complete`) was not declared."""
    faults = [f"{name} {version} is not installed" for name, version in declared.items() if name not in installed]
    faults += [
        f"{name} is {installed[name]}, declared {version}"
        for name, version in declared.items()
        if name in installed and not same(installed[name], version)
    ]
    extra: Iterable[str] = set(installed) - set(declared) if complete else ()
    return faults + [f"{name} {installed[name]} was not declared" for name in extra]


def is_same_version(left: str, right: str) -> bool:
    """Return whether two versions are equal by PEP 440: 1.0 and 1.0.0 are one version.

    Texts that are not versions are compared as texts.
    """
    if left == right:
        return True
    from packaging.version import Version

    try:
        return Version(left) == Version(right)
    except ValueError:  # also a number that Python does not read
        return False
