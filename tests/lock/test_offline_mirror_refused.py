"""The folder of an air-gapped site: damage, what belongs to another image, and paths that lead out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import InputError, LockError, PublishError, SpecError
from envbuild.core.store.store import Store
from envbuild.core.unfinished_names import unfinished_name
from envbuild.lock import mirror_folder
from envbuild.lock.inputs import Input
from envbuild.lock.model import DebianFile, PythonFile, SourceFile
from envbuild.lock.offline_mirror import export_mirror, mirror_path
from tests.support.as_user import open_folder, run_as
from tests.support.stored_inputs import deb, lock, paths, source

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("content", [b"", b"package hellx", b"longer than the package"])
def test_damaged_files_are_written_again(store: Store, tmp_path: Path, content: bytes) -> None:
    wanted, folder, reporter = lock(deb(store, "hello")), tmp_path / "bundle", SilentReporter()
    export_mirror(wanted, store, folder, SilentReporter())
    hello = folder / "debian/pool/main/h/hello/hello_1.0_all.deb"
    hello.unlink()  # it is a link into the store
    hello.write_bytes(content)
    assert export_mirror(wanted, store, folder, reporter).new == 1
    assert hello.read_bytes() == b"package hello"
    assert reporter.lines == [f"{hello}: digest mismatch with the lock; it is written again"]


def test_a_file_that_another_image_needs_is_not_replaced(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    export_mirror(lock(source(store, "x.tar.gz", "github:one/x@v1")), store, folder, SilentReporter())
    other = lock(source(store, "x.tar.gz", "github:two/x@v1"), name="other")
    with pytest.raises(PublishError, match="another image in this folder needs a different file") as caught:
        export_mirror(other, store, folder, SilentReporter())
    assert caught.value.hint == "export other to a folder of its own:  envbuild fetch other --to FOLDER"
    assert not (folder / "images/other.lock").exists()
    newer = lock(source(store, "x.tar.gz", "github:one/x@v2"))  # of the image itself it may be
    assert export_mirror(newer, store, folder, SilentReporter()).new == 1


def test_damaged_blobs_of_the_store_are_not_exported(store: Store, tmp_path: Path) -> None:
    wanted, folder = lock(deb(store, "hello")), tmp_path / "bundle"
    store.blob(wanted.debian["hello_1.0_all.deb"].sha256).write_bytes(b"package hellx")
    with pytest.raises(InputError, match="corrupt blob in the store"):
        export_mirror(wanted, store, folder, SilentReporter())
    assert paths(folder) == set()


def test_leftovers_of_a_killed_run_are_removed(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    left = folder / unfinished_name("mirror")
    left.mkdir(parents=True)
    (left / "half").write_bytes(b"x")
    export_mirror(lock(deb(store, "hello")), store, folder, SilentReporter())
    assert not left.exists()
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize("name", [".new", ".mirror.envbuild-0123abcd"])
def test_what_another_user_may_have_renamed_is_not_removed(name: str, store: Store, tmp_path: Path) -> None:
    """A member of the group of a mirror could give any folder of the caller the name of an unfinished one."""
    folder = tmp_path / "bundle"
    (folder / name / "data").mkdir(parents=True)
    (folder / name / "data/file").write_bytes(b"x")
    folder.chmod(0o777)
    export_mirror(lock(deb(store, "hello")), store, folder, SilentReporter())
    assert (folder / name / "data/file").read_bytes() == b"x"


@pytest.mark.parametrize(("mode", "left"), [(0o755, False), (0o2775, True)])
def test_a_member_of_a_group_is_another_user_there(mode: int, left: bool) -> None:
    user, group = 50_001, 50_000
    with open_folder() as top:
        folder = top / "mirror"
        data = folder / unfinished_name("mirror") / "data"
        data.mkdir(parents=True)
        for path in (folder, data.parent, data):
            os.chown(path, user, group)
        folder.chmod(mode)

        def remove() -> None:
            fd = os.open(folder, os.O_RDONLY)
            mirror_folder.remove_unfinished(fd)
            os.close(fd)

        run_as(user, user, (group,), remove)
        assert data.exists() == left


@pytest.mark.parametrize(
    "entry",
    [
        DebianFile("x.deb", "x", "1", "debian:trixie/main", "../../x.deb", 1, "0" * 64),
        DebianFile("x.deb", "x", "1", "apt:../..", "x.deb", 1, "0" * 64),
        PythonFile("x.whl", "x", "1", 1, "0" * 64, "pip:../../etc"),
        SourceFile("x.tar", "debian:../../x.tar", "0" * 64),
    ],
)
def test_a_lock_cannot_write_elsewhere(entry: Input) -> None:
    with pytest.raises(LockError, match="names a path outside"):
        mirror_path(entry)


@pytest.mark.parametrize(
    "entry",
    [
        DebianFile("x.deb", "x", "1", "images:trixie", "x.deb", 1, "0" * 64),
        DebianFile("index.json", "x", "1", "oci:host:1/nvidia", "pytorch/index.json", 1, "0" * 64),
        PythonFile("index.json", "x", "1", 1, "0" * 64, "oci:host/nvidia/pytorch"),
    ],
)
def test_a_file_of_a_kind_has_an_origin_of_that_kind(entry: Input) -> None:
    """A package with another one could replace the index of a base image."""
    with pytest.raises(LockError, match="as the origin of"):
        mirror_path(entry)


def test_a_folder_that_is_something_else(store: Store, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("schema: 1\nmirrors: {debian: [debian]}\n")
    with pytest.raises(SpecError, match="belongs to another site") as caught:
        export_mirror(lock(deb(store, "hello")), store, tmp_path, SilentReporter())
    assert caught.value.hint == "choose an empty folder:  --to FOLDER"
    assert not (tmp_path / "debian").exists()
    (tmp_path / "file").touch()
    with pytest.raises(PublishError, match="cannot be written"):
        export_mirror(lock(), store, tmp_path / "file", SilentReporter())


def test_a_folder_of_an_older_version_without_newer_kinds(store: Store, tmp_path: Path) -> None:
    """It is used as it is, until an image needs such a kind; the hint is the line that adds it."""
    folder, reporter = tmp_path / "bundle", SilentReporter()
    export_mirror(lock(deb(store, "hello")), store, folder, reporter)
    site, line = folder / "site.yaml", "  vendor: [sources]\n"
    older = site.read_text().replace(line, "")
    site.write_text(older)
    assert export_mirror(lock(deb(store, "bash"), name="second"), store, folder, reporter).new == 1
    own = lock(source(store, "efa.tar.gz", "vendor:aws-efa/efa.tar.gz"), name="third")
    with pytest.raises(SpecError, match="has no mirror for vendor") as caught:
        export_mirror(own, store, folder, reporter)
    assert caught.value.hint == f"add to its mirrors:  {line.strip()}"
    assert site.read_text() == older
    site.write_text(older + line)
    assert export_mirror(own, store, folder, reporter).new == 1
