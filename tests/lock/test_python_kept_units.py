"""Python packages that remain as they were locked: no run of uv for a unit without a change, no page for a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import ConflictError
from envbuild.core.store.store import Store
from envbuild.lock.model import PythonFile
from envbuild.lock.python.kept_units import KeptUnits
from envbuild.lock.python.pins import Pin
from envbuild.lock.python.resolve import PythonLock
from envbuild.lock.python.uv import Uv
from envbuild.lock.request import UnitRequest
from envbuild.lock.stored_results import StoredResults
from envbuild.net.python_index import PackageIndex
from envbuild.net.site import Site
from tests.support.lock_server import simple_index, wheel
from tests.support.python_resolver import versions, work_at

pytestmark = [pytest.mark.unit, pytest.mark.slow_unit]
GLIBC = (2, 41)
UNITS = {"venv": UnitRequest(python=("one",)), "build-x": UnitRequest(python=("one", "tool"))}


class Desk:
    """A site with an index, and the queries of a lock to uv and the index; `lock` is made from the one before."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.runs, self.pages = folder, list[str](), list[str]()
        self.wheels = [wheel(folder / "wheels", name, "1.0") for name in ("one", "tool", "two")]
        self.site = Site(folder / "store", mirrors={"python:": (self.index(),)}, use_host=False)
        self.results = StoredResults(Store.open(folder / "store"))
        self.last: PythonLock | None = None
        self.context: object = "same"
        run, simple = Uv.run, PackageIndex._simple

        def counted_run(uv: Uv, what: str, *rest: Any, **options: Any) -> Any:
            self.runs.append(what)
            return run(uv, what, *rest, **options)

        def counted_page(index: PackageIndex, place: str, name: str) -> Any:
            self.pages.append(name)
            return simple(index, place, name)

        monkeypatch.setattr(Uv, "run", counted_run)
        monkeypatch.setattr(PackageIndex, "_simple", counted_page)

    def index(self) -> str:
        return simple_index(self.folder / "simple", self.wheels)

    def add(self, name: str, version: str) -> None:
        self.wheels.append(wheel(self.folder / "wheels", name, version))
        self.index()

    def lock(self, units: Mapping[str, UnitRequest] = UNITS, **changes: Any) -> PythonLock:
        previous, files = {}, dict[tuple[str, str], PythonFile]()
        for name, unit in self.last.units.items() if self.last else ():
            found = [self.last.files[file] for file in unit.python] if self.last else []
            previous[name] = {file.name: file.version for file in found}
            files |= {(file.name, file.version): file for file in found}
        self.runs.clear()
        self.pages.clear()
        work = work_at(self.site, self.folder, "3.13", GLIBC, previous=previous)
        self.last = replace(work, kept=KeptUnits(files, self.results, self.context), **changes).lock(units)
        return self.last


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


def test_nothing_is_requested_for_units_without_a_change(desk: Desk) -> None:
    first = desk.lock()
    assert set(desk.runs) == {"venv", "build-x"} and set(desk.pages) == {"one", "tool"}
    desk.add("one", "2.0")
    assert desk.lock() == first
    assert (desk.runs, desk.pages) == ([], [])


def test_a_new_package_leaves_the_pins_and_requests_itself_alone(desk: Desk) -> None:
    desk.lock()
    desk.add("one", "2.0")
    desk.add("tool", "2.0")
    found = desk.lock({**UNITS, "venv": UnitRequest(python=("one", "two"))})
    assert versions(found, "venv") == ["one 1.0", "two 1.0"] and versions(found, "build-x") == ["one 1.0", "tool 1.0"]
    assert (desk.runs, desk.pages) == (["venv"], ["two"])


def test_a_build_follows_the_version_that_is_shipped(desk: Desk) -> None:
    desk.lock()
    desk.add("one", "2.0")
    found = desk.lock({**UNITS, "venv": UnitRequest(python=("one>=2",))})
    assert versions(found, "build-x") == ["one 2.0", "tool 1.0"]
    assert set(desk.runs) == {"venv", "build-x"}


def test_another_query_is_answered_by_uv(desk: Desk) -> None:
    """Of another Python, index or uv."""
    desk.lock()
    desk.context = "other"
    desk.lock()
    assert set(desk.runs) == {"venv", "build-x"} and desk.pages == []


def test_damaged_answers_are_absent(desk: Desk) -> None:
    first = desk.lock()
    for path in (desk.folder / "store/resolved").iterdir():
        path.write_bytes(path.read_bytes()[:40])
    assert desk.lock() == first and set(desk.runs) == {"venv", "build-x"}


def test_an_answer_with_other_versions_than_the_lock_is_not_used(desk: Desk) -> None:
    """The lock is that of another branch, made while the index had less."""
    older = desk.lock()
    desk.add("one", "2.0")
    desk.last = None
    assert versions(desk.lock(), "venv") == ["one 2.0"]
    desk.last = older
    assert desk.lock() == older and set(desk.runs) == {"venv", "build-x"}


def test_an_answer_whose_versions_are_those_of_another_unit_is_not_used(store: Store) -> None:
    files = {
        ("one", version): PythonFile(f"one-{version}-py3-none-any.whl", "one", version, 5, "a" * 64)
        for version in ("1.0", "2.0")
    }
    kept = KeptUnits(files, StoredResults(store))
    kept.record("venv", {}, {"one": Pin("one", "2.0", frozenset({"a" * 64}))})
    assert kept.pins("venv", {}, {"one": "1.0"}, {}) is None
    assert set(kept.pins("venv", {}, {"one": "2.0"}, {}) or ()) == {"one"}


def test_no_pinned_package_gets_another_version(desk: Desk) -> None:
    desk.wheels.append(wheel(desk.folder / "wheels", "user", "1.0", requires=("one",)))
    desk.index()
    units = {"venv": UnitRequest(python=("one", "user"))}
    desk.lock(units)
    desk.add("one", "2.0")
    desk.wheels.append(wheel(desk.folder / "wheels", "user", "1.5", requires=("one",)))
    desk.wheels.append(wheel(desk.folder / "wheels", "user", "2.0", requires=("one>=2",)))
    desk.index()
    assert desk.last
    pins = {file.name: file.version for file in desk.last.files.values()}
    work = work_at(desk.site, desk.folder, "3.13", GLIBC, previous={"venv": {"one": pins["one"]}})
    assert versions(replace(work, hold=True).lock(units), "venv") == ["one 1.0", "user 1.5"]
    gone = work_at(desk.site, desk.folder, "3.13", GLIBC, previous={"venv": {"one": "0.9"}})
    assert versions(gone.lock(units), "venv") == ["one 2.0", "user 2.0"]
    with pytest.raises(ConflictError, match=r"one==0\.9"):
        replace(gone, errors=[], hold=True).lock(units)


def test_a_file_is_preserved_only_if_the_index_lists_it_with_that_digest() -> None:
    file = PythonFile("one-1.0-py3-none-any.whl", "one", "1.0", 5, "a" * 64)
    kept = KeptUnits({("one", "1.0"): file})
    assert kept.file(Pin("one", "1.0", frozenset({"a" * 64, "b" * 64})), "") == file
    assert kept.file(Pin("one", "1.0", frozenset({"b" * 64})), "") is None
    assert kept.file(Pin("one", "1.0", frozenset()), "") is None
    assert kept.file(Pin("one", "2.0", frozenset({"a" * 64})), "") is None
    assert kept.file(Pin("one", "1.0", frozenset({"a" * 64})), "pip:vendor") is None
