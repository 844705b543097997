"""`envbuild fetch`: into the store or a folder; missing inputs of several images are reported at the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.cli.fetch_inputs import fetch_images
from envbuild.core.console import SilentReporter
from envbuild.core.errors import InputError, LockError
from envbuild.core.store.store import Store
from envbuild.lock.lockfile import write_lock
from envbuild.lock.model import DebianFile, UnitLock
from envbuild.lock.offline_mirror import export_mirror
from envbuild.lock.request import lock_request
from envbuild.lock.resolve import resolve_as_locked
from envbuild.net.site import Site
from envbuild.net.site_file import read_site
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.project import Project
from envbuild.spec.workspace import Workspace
from tests.support.stored_inputs import deb, lock

pytestmark = pytest.mark.unit


def written(folder: Path, name: str, entries: dict[str, DebianFile]) -> None:
    """Write an image of a project, and its lock."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    spec = folder / "images" / f"{name}.yaml"
    spec.write_text("schema: 1\ntarget: node\nbase: debian:13\nlayers: {}\n")
    resolution = resolve_as_locked(load_image_spec(name, Project(folder)), Project(folder))
    units = {"base": UnitLock(debian=tuple(entries))}
    whole = replace(lock(name=name), inputs=lock_request(resolution).digest(), debian=entries, units=units)
    write_lock(whole, spec.with_suffix(".lock"))


@pytest.fixture
def project(small: Project, tmp_path: Path) -> Project:
    assert small.root is not None
    (tmp_path / "project").mkdir()
    (tmp_path / "project/targets").symlink_to(small.root / "targets")
    return Project(tmp_path / "project")


def test_the_command(store: Store, project: Project, tmp_path: Path) -> None:
    away = Store.open(tmp_path / "away")
    first, second, gone = (deb(away, name) for name in ("hello", "bash", "gone"))
    export_mirror(lock(first, second), away, tmp_path / "mirror", SilentReporter())
    site = read_site(tmp_path / "mirror/site.yaml")
    assert project.root is not None
    written(project.root, "one", {first.file: first})
    written(project.root, "two", {second.file: second, gone.file: gone})
    here = Workspace(project, replace(site, store=store.root), store, SilentReporter())
    ((row, text),) = fetch_images(["one"], here, None)
    assert row == {"image": "one", "store": str(store.root), "files": 1, "bytes": 13, "warnings": []}
    assert text.endswith("next:     envbuild make one   (needs no network)")
    assert store.has_blob(first.sha256)
    answers = fetch_images(["two", "one"], here, tmp_path / "bundle")
    row, text = next(answers)  # a complete image is exported and reported first, then what the other lacks
    counts = {"files": 1, "bytes": 13, "new": 1, "new_bytes": 13}
    assert row == {"image": "one", "to": str(tmp_path / "bundle"), **counts, "warnings": []}
    assert f"ln -s {tmp_path / 'bundle/site.yaml'} site.yaml && envbuild make one" in text
    with pytest.raises(InputError) as caught:
        next(answers)
    assert [finding.message.split(" (")[0] for finding in caught.value.findings] == ["the Debian package gone 1.0"]
    assert (tmp_path / "bundle/images/one.lock").is_file() and not (tmp_path / "bundle/images/two.lock").exists()
    assert read_site(tmp_path / "bundle/site.yaml").places("debian:")[1] == (str(tmp_path / "bundle/debian"),)
    ((row, _),) = fetch_images(["one"], here, tmp_path / "bundle")
    assert row == {"image": "one", "to": str(tmp_path / "bundle"), **counts, "new": 0, "new_bytes": 0, "warnings": []}


def test_missing_inputs_of_several_images_are_reported_at_the_end(
    store: Store, project: Project, tmp_path: Path
) -> None:
    away = Store.open(tmp_path / "away")
    assert project.root is not None
    ubuntu, cuda = deb(away, "gcc", "ubuntu:jammy/main"), deb(away, "cuda", "apt:nvidia-cuda/x", "cuda_13_all.deb")
    for name, entries in (("one", [deb(store, "hello")]), ("two", [ubuntu]), ("three", [ubuntu, cuda])):
        written(project.root, name, {entry.file: entry for entry in entries})
    reporter, bare = SilentReporter(), Site(store.root, mirrors={"python:": ()}, use_host=False, where="site.yaml")
    answers = fetch_images(["two", "three", "one"], Workspace(project, bare, store, reporter), tmp_path / "bundle")
    assert next(answers)[0]["image"] == "one"
    with pytest.raises(InputError) as caught:
        next(answers)
    assert caught.value.exit_code == 10
    assert [finding.message.partition(",")[0] for finding in caught.value.findings] == [
        "no place is known for ubuntu:jammy/main",
        "no place is known for apt:nvidia-cuda/x",
    ]
    assert reporter.lines[-1] == (
        "all of these images: these lines of site.yaml would supply the rest; replace the places with yours:\n"
        "mirrors:\n"
        '  ubuntu: [ADDRESS-OR-FOLDER]\n  "apt:nvidia-cuda/x": [ADDRESS-OR-FOLDER]'
    )


def test_a_conflicting_file_in_the_folder_does_not_stop_the_other_images(
    store: Store, project: Project, tmp_path: Path
) -> None:
    """Conflicts of one image and missing inputs of another are reported together at the end."""
    assert project.root is not None
    here, gone = deb(store, "hello"), replace(deb(store, "gone"), sha256="0" * 64)
    other = replace(deb(store, "bash"), path=here.path)
    for name, entry in (("one", here), ("two", other), ("three", gone), ("four", deb(store, "four"))):
        written(project.root, name, {entry.file: entry})
    bare = Site(store.root, mirrors={"python:": ()}, use_host=False)
    answers = fetch_images(
        ["one", "two", "three", "four"], Workspace(project, bare, store, SilentReporter()), tmp_path / "bundle"
    )
    assert [next(answers)[0]["image"], next(answers)[0]["image"]] == ["one", "four"]
    with pytest.raises(InputError) as caught:
        next(answers)
    (taken, lacking) = caught.value.findings
    assert "another image in this folder needs a different file" in taken.message
    assert lacking.message.startswith("no place is known for debian:trixie/main")


def test_an_image_that_cannot_be_locked_does_not_stop_the_others(
    store: Store, project: Project, tmp_path: Path
) -> None:
    here = deb(store, "hello")
    assert project.root is not None
    for name in ("one", "two"):
        written(project.root, name, {here.file: here})
    (project.root / "images/two.lock").unlink()
    bare = Site(store.root, mirrors={"python:": ()}, use_host=False)
    with pytest.raises(InputError):
        list(fetch_images(["two", "one"], Workspace(project, bare, store, SilentReporter()), tmp_path / "bundle"))
    assert [path.name for path in (tmp_path / "bundle/images").iterdir()] == ["one.lock"]


@pytest.mark.parametrize("image", ["../../../pwned", "/{}/pwned", "a/b", "two"])
def test_the_name_in_a_lock_is_that_of_its_image(store: Store, project: Project, tmp_path: Path, image: str) -> None:
    """It is part of a path in the folder, and of names of artifacts."""
    assert project.root is not None
    here = deb(store, "hello")
    written(project.root, "one", {here.file: here})
    path = project.root / "images/one.lock"
    path.write_text(path.read_text().replace("image: one\n", f"image: {image.format(tmp_path)}\n"))
    bare = Site(store.root, mirrors={"python:": ()}, use_host=False)
    before = sorted(path for path in tmp_path.rglob("*") if not path.is_relative_to(store.root))
    message = "the lock belongs to another image, two" if image == "two" else "cannot be the name of an image"
    with pytest.raises(LockError, match=message) as caught:
        list(fetch_images(["one"], Workspace(project, bare, store, SilentReporter()), tmp_path / "out/bundle"))
    assert caught.value.exit_code == 4 and caught.value.where == str(path)
    assert caught.value.hint == "restore it from version control, or make it again: envbuild lock one"
    assert sorted(path for path in tmp_path.rglob("*") if not path.is_relative_to(store.root)) == before
