"""The daily loop of `lock`: what is unchanged costs nothing, a dry run writes nothing, one package moves alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.lock.lockfile import read_lock
from tests.support import local_registry as kit
from tests.support.command import envbuild
from tests.support.debian_archive import RELEASED, Signer, publish, signer, stanza
from tests.support.lock_project import BASE, LockProject
from tests.support.lock_server import wheel
from tests.support.lock_site import MARKS
from tests.support.saved_image import write_saved_image

pytestmark = [*MARKS, pytest.mark.slow_unit]
Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def key() -> Iterator[Signer]:
    with signer() as found:
        yield found


@pytest.fixture
def place(tmp_path: Path, key: Signer) -> LockProject:
    """Return a project that is locked; its index and archive have newer versions since."""
    project = LockProject(tmp_path, key, {"python-packages": ["one", "two"], "debian-packages": ["hello"]})
    project.publish([stanza("hello")])
    add(project, "one", "1.0")
    add(project, "two", "1.0")
    assert project.lock().returncode == 0
    add(project, "one", "2.0")
    add(project, "two", "2.0")
    return project


def add(place: LockProject, name: str, version: str, *requires: str) -> None:
    wheel(place.folder / "wheels", name, version, requires=requires)
    place.index(*(path for path in (place.folder / "wheels").glob("*.whl") if not path.name.startswith("uv-")))


def move_archive(place: LockProject, version: str, days: int) -> None:
    for suite, stanzas in (("trixie", (*BASE, stanza("hello", version))), ("trixie-updates", ())):
        publish(place.folder / "debian", suite, stanzas, place.key, released=RELEASED + days)


def path_of(place: LockProject) -> Path:
    return place.folder / "project/images/k.lock"


def pins(place: LockProject) -> dict[str, str]:
    lock = read_lock(path_of(place))
    files = [*lock.python_files.values(), *lock.debian.values()]
    return {file.name: file.version for file in files if file.name in ("one", "two", "three", "hello")}


def answer(done: Done) -> dict[str, object]:
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)["images"][0]
    return found


def refused(done: Done, code: int, *texts: str) -> None:
    assert done.returncode == code, done.stderr
    for text in texts:
        assert text in done.stderr


def command(place: LockProject, *arguments: str, store: str = "store") -> Done:
    places = {"ENVBUILD_STORE": str(place.folder / store), "APT_CONFIG": str(place.folder / "apt.conf")}
    return envbuild(*arguments, cwd=place.folder / "project", **places)


# what moved


def test_a_lock_without_a_change_repeats_its_answer(place: LockProject) -> None:
    before = path_of(place).read_bytes()
    path_of(place).unlink()
    assert "security archive" in place.lock("--dry-run").stderr  # of a run that resolves
    path_of(place).write_bytes(before)
    first = answer(place.lock("--json"))
    done = place.lock("--json")
    assert first["warnings"] == []
    assert answer(done) == first and "k: the lock is unchanged" in done.stderr
    assert first["written"] is False and first["changes"] == []


def test_a_new_package_keeps_every_pin_and_the_answer_lists_it(place: LockProject) -> None:
    add(place, "three", "1.0")
    place.layers = {**place.layers, "python-packages": ["one", "three"]}
    found = answer(place.lock("--json"))
    assert pins(place) == {"one": "1.0", "three": "1.0", "hello": "1.0"}
    assert found["changes"] == [
        {"change": "added", "kind": "python", "name": "three", "before": [], "after": ["1.0"]},
        {"change": "removed", "kind": "python", "name": "two", "before": ["1.0"], "after": []},
    ]


def test_an_edit_is_found_although_the_time_of_the_file_is_the_same(place: LockProject) -> None:
    place.lock()
    spec = place.folder / "project/images/k.yaml"
    times = spec.stat().st_atime_ns, spec.stat().st_mtime_ns
    place.layers = {**place.layers, "python-packages": ["one", "one"]}
    place.write()
    os.utime(spec, ns=times)
    assert command(place, "lock", "k").returncode == 0
    assert "two" not in pins(place)


def test_a_damaged_record_of_a_current_lock_is_absent(place: LockProject) -> None:
    place.lock()
    for path in (place.folder / "store/resolved").iterdir():
        path.write_text("{")
    assert "k: the lock is unchanged" in place.lock().stderr
    assert pins(place) == {"one": "1.0", "two": "1.0", "hello": "1.0"}


def test_variables_and_the_description_leave_a_lock_current(place: LockProject) -> None:
    spec = place.folder / "project/images/k.yaml"
    before = path_of(place).read_bytes()
    spec.write_text(json.dumps({**json.loads(spec.read_text()), "env": {"A": "1"}, "description": "other"}))
    assert command(place, "make", "k", "--locked").returncode != 4  # no file of the small archive can be fetched
    assert "the lock is unchanged" in command(place, "lock", "k").stderr
    assert path_of(place).read_bytes() == before


def test_a_package_that_left_the_index_is_found_by_refresh(place: LockProject) -> None:
    (place.folder / "wheels/one-1.0-py3-none-any.whl").unlink()
    add(place, "three", "1.0")
    assert place.lock().returncode == 0 and pins(place)["one"] == "1.0"  # the lock is current: no index is queried
    assert place.lock("--refresh").returncode == 0
    assert pins(place) == {"one": "2.0", "two": "1.0", "hello": "1.0"}


def test_stored_results_lead_to_the_same_bytes(place: LockProject) -> None:
    place.layers = {"python-packages": ["one"], "debian-packages": ["hello"]}
    path_of(place).unlink()
    assert place.lock().returncode == 0
    first = path_of(place).read_bytes()
    path_of(place).unlink()
    assert place.lock().returncode == 0
    assert path_of(place).read_bytes() == first


# dry runs


def test_a_dry_run_prints_the_changes_and_writes_no_lock(place: LockProject) -> None:
    add(place, "three", "1.0")
    place.layers = {**place.layers, "python-packages": ["one", "three"]}
    before = path_of(place).read_bytes()
    done = place.lock("--dry-run")
    assert done.returncode == 0 and path_of(place).read_bytes() == before
    assert "+ three 1.0" in done.stderr and "- two 1.0" in done.stderr
    assert "k: dry run" in done.stdout and "is not written: 1 added, 1 removed" in done.stdout
    found = answer(place.lock("--dry-run", "--json"))
    assert (found["dry_run"], found["changed"], found["written"], found["moved"]) == (True, True, False, {})
    assert "moved on" not in place.lock().stderr and pins(place)["three"] == "1.0"


def test_a_dry_run_without_a_lock_writes_none(place: LockProject) -> None:
    path_of(place).unlink()
    found = answer(place.lock("--dry-run", "--json"))
    assert found["changed"] is True and not path_of(place).exists()


def test_a_dry_run_of_a_current_lock_names_the_archives_that_it_reads(place: LockProject) -> None:
    (place.folder / "store/apt").rename(place.folder / "apt-of-an-hour-ago")
    done = place.lock("--dry-run")
    assert "reading the package lists (debian:trixie/main, debian:trixie-updates/main)" in done.stderr
    assert "security archive" not in done.stderr  # the lines of that step are for a run that resolves


def test_an_index_that_moved_on_after_the_dry_run_is_named(place: LockProject) -> None:
    add(place, "three", "1.0")
    place.layers = {**place.layers, "python-packages": ["one", "two", "three"]}
    assert place.lock("--dry-run").returncode == 0
    add(place, "three", "1.1")
    done = place.lock()
    assert "the package index, or a source moved on since the dry run of " in done.stderr
    assert pins(place)["three"] == "1.1"
    assert "moved on" not in place.lock().stderr


def test_a_fresh_lock_is_not_compared_with_a_dry_run_of_the_older_versions(place: LockProject) -> None:
    add(place, "three", "1.0")
    place.layers = {**place.layers, "python-packages": ["one", "two", "three"]}
    assert place.lock("--dry-run").returncode == 0
    done = place.lock("--fresh")
    assert done.returncode == 0 and pins(place)["one"] == "2.0"
    assert "moved on" not in done.stderr


def test_an_archive_that_moved_on_is_named_by_the_dry_run_and_by_the_lock(place: LockProject) -> None:
    assert place.lock("--dry-run", "--refresh").returncode == 0
    move_archive(place, "2.0", 3)
    place.layers = {**place.layers, "python-packages": ["one"]}
    (place.folder / "store/apt").rename(place.folder / "apt-of-an-hour-ago")
    found = answer(place.lock("--dry-run", "--json"))
    assert list(found["moved"]) == ["debian:trixie-updates/main", "debian:trixie/main"]  # type: ignore[call-overload]
    move_archive(place, "3.0", 5)
    done = place.lock("--refresh")
    assert "debian:trixie/main moved on since the dry run of " in done.stderr
    assert pins(place)["hello"] == "3.0"


# one package


def test_one_package_is_upgraded_and_nothing_else_moves(place: LockProject) -> None:
    move_archive(place, "2.0", 3)
    done = place.lock("--upgrade-package", "one")
    assert done.returncode == 0 and "one 1.0 → 2.0" in done.stderr
    dry = place.lock("--upgrade-package", "two", "--dry-run")
    assert "next:     envbuild lock k --upgrade-package two" in dry.stdout
    assert pins(place) == {"one": "2.0", "two": "1.0", "hello": "1.0"}
    found = answer(place.lock("--upgrade-package", "One", "--upgrade-package", "two", "--json"))
    assert [row["name"] for row in found["changes"]] == ["two"]  # type: ignore[attr-defined]


def test_an_upgraded_package_may_be_named_in_any_spelling(place: LockProject) -> None:
    assert place.lock("--upgrade-package", "One").returncode == 0
    assert pins(place) == {"one": "2.0", "two": "1.0", "hello": "1.0"}


def test_the_newest_version_that_fits_the_others_is_taken(place: LockProject) -> None:
    add(place, "one", "1.5")
    add(place, "one", "2.0", "two>=2")
    assert place.lock("--upgrade-package", "one").returncode == 0
    assert pins(place) == {"one": "1.5", "two": "1.0", "hello": "1.0"}


def test_what_is_not_a_python_package_of_the_lock_is_refused(place: LockProject) -> None:
    before = path_of(place).read_bytes()
    names = ("hello", "debian-packages", "on", "nothing")
    done = place.lock(*(f"--upgrade-package={name}" for name in names))
    refused(
        done,
        2,
        "'hello' is a Debian package: --upgrade-package takes Python packages\nhint: envbuild lock k --upgrade hello",
        "'debian-packages' is a layer, and not of a Python package",
        "the lock has no Python package 'on' to upgrade\nhint: did you mean 'one'?",
        "the lock has no Python package 'nothing' to upgrade",
    )
    assert path_of(place).read_bytes() == before


def test_an_upgrade_requires_a_current_lock(place: LockProject) -> None:
    place.layers = {**place.layers, "python-packages": ["one"]}
    refused(place.lock("--upgrade-package", "one"), 4, "k.lock is outdated", "hint: envbuild lock k")
    path_of(place).unlink()
    refused(place.lock("--upgrade-package", "one"), 4, "k has no lock")
    refused(place.lock("--upgrade-package", "one", "--refresh"), 2, "leave out --upgrade, --refresh and --fresh")


# make


def test_make_locked_requires_current_locks_and_names_all_others(place: LockProject) -> None:
    project = place.folder / "project/images"
    (project / "new.yaml").write_text((project / "k.yaml").read_text())
    place.layers = {**place.layers, "python-packages": ["one"]}
    place.write()
    before = path_of(place).read_bytes()
    refused(command(place, "make", "new", "k", "--locked"), 4, "new has no lock", "k.lock is outdated")
    refused(command(place, "make", "new", "--locked"), 4, "new has no lock")
    assert path_of(place).read_bytes() == before and not (project / "new.lock").exists()
    path_of(place).write_text("{")
    refused(command(place, "make", "k", "--locked"), 4, "the lock is damaged")
    refused(command(place, "make", "k", "--locked", "--lock"), 2, "leave out one of them")


def test_make_lock_locks_again_what_is_outdated(place: LockProject) -> None:
    place.layers = {**place.layers, "python-packages": ["one"]}
    place.write()
    refused(command(place, "make", "k"), 4, "k.lock is outdated")
    done = command(place, "make", "k", "--lock")
    assert "k.lock is outdated; locking the inputs of k" in done.stderr and "two" not in pins(place)


def test_a_base_that_is_a_file_is_read_again(tmp_path: Path, key: Signer) -> None:
    base = {"base": "./app.tar", "distribution": "debian:13", "python": "3.13"}
    reason = "of numpy, the small image has the metadata alone"
    waivers = [{"fact": fact, "reason": reason} for fact in ("numpy.python-tags", "numpy-python")]
    place = LockProject(tmp_path, key, spec={**base, "waivers": waivers})
    place.publish()
    place.index()
    place.write()
    archive = tmp_path / "project/images/app.tar"
    write_saved_image(archive, [kit.system()])
    assert answer(place.lock("--json"))["written"] is True
    assert answer(place.lock("--json"))["written"] is False
    write_saved_image(archive, [kit.system(), kit.tar(kit.file("srv/new"))])
    before = path_of(place).read_bytes()
    refused(command(place, "make", "k", "--locked"), 4, "k.lock would change, because the base of k did")
    assert path_of(place).read_bytes() == before
    assert answer(place.lock("--json"))["written"] is True
    before = path_of(place).read_bytes()
    (tmp_path / "simple").rename(tmp_path / "away")  # without the indexes
    shutil.rmtree(tmp_path / "store/resolved", ignore_errors=True)
    for missing in (False, True):
        if missing:
            archive.unlink()
        for option in ("--lock", "--locked"):  # what follows the lock fails: uv is not available
            done = command(place, "make", "k", option)
            unknown = "whether k is on the present ./app.tar is not known: there is no file or folder" in done.stderr
            assert unknown is missing and "would change" not in done.stderr, done.stderr
            assert "error: the Python file uv" in done.stderr
            assert "copying ./app.tar" not in done.stderr  # its layers, many GB, are not read
            for rest in [] if missing else [(), (option,)]:  # as after a clone of the project
                new = command(place, "make", "k", *rest, store=f"new{option}{len(rest)}")
                assert "copying ./app.tar" in new.stderr and "error: the Python file uv" in new.stderr, new.stderr
    assert path_of(place).read_bytes() == before
