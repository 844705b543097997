"""The folder that an air-gapped site builds from: written, read back through its own site file, added to."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import InputError, PublishError
from envbuild.core.store.store import Store
from envbuild.lock import mirror_folder
from envbuild.lock.fetch import fetch, inputs_to_fetch
from envbuild.lock.inputs import list_inputs
from envbuild.lock.lockfile import read_lock
from envbuild.lock.offline_mirror import MirrorStats, copy_file, export_mirror, mirror_path
from envbuild.net.origin_kinds import MIRROR_FOLDERS, ORIGIN_KINDS
from envbuild.net.site import Site
from envbuild.net.site_file import read_site
from tests.support.git_server import Repo
from tests.support.stored_inputs import base, blob, deb, everything, lock, paths
from tests.support.time_limit import ends_within

pytestmark = pytest.mark.unit


def test_every_kind_of_input_is_found_again_through_the_folders_own_site(store: Store, tmp_path: Path) -> None:
    wanted, folder = everything(store), tmp_path / "bundle"
    image = wanted.base_image
    assert image is not None
    done = export_mirror(wanted, store, folder, SilentReporter())
    assert (done.files, done.new, done.size) == (14, 14, done.new_size)
    layout = "oci/registry.example:5000/group/base"
    assert paths(folder) == {
        "site.yaml",
        "images/demo.lock",
        "debian/pool/main/h/hello/hello_1.0_all.deb",
        "debian/pool/main/p/patch/patch.orig.tar.xz",
        "debian-security/pool/updates/main/o/openssl/libssl3_3_all.deb",
        "ubuntu/pool/main/g/gcc/gcc_1.0_all.deb",
        "apt/nvidia-cuda/ubuntu2204/cuda_13_all.deb",
        "python/numpy-1.0-py3-none-any.whl",
        "pip/pytorch/cu113/torch-1.0-py3-none-any.whl",
        "sources/ucx-1.20.1.tar.gz",
        "sources/ucc-0123456789ab.tar",
        "sources/efa.tar.gz",
        "sources/own.tar.gz",
        f"{layout}/oci-layout",
        f"{layout}/index.json",
        *(f"{layout}/blobs/sha256/{digest}" for digest in (image.digest, image.config, image.layers[0][0])),
    }
    assert read_lock(folder / "images/demo.lock") == wanted
    moved = folder.rename(tmp_path / "moved")  # a disk is mounted elsewhere at the other site
    (tmp_path / "project").mkdir()
    (tmp_path / "project/site.yaml").symlink_to(moved / "site.yaml")
    site = read_site(tmp_path / "project/site.yaml")
    assert not site.use_host
    other = Store.open(tmp_path / "other")
    fetch(wanted, other, site, SilentReporter(), manifest=True, pause=0.001)
    assert inputs_to_fetch(wanted, other, manifest=True) == []
    for entry in list_inputs(wanted):
        other.check_blob(entry.sha256)


def test_the_site_file_has_a_mirror_for_every_kind(store: Store, tmp_path: Path) -> None:
    export_mirror(lock(), store, tmp_path / "bundle", SilentReporter())
    mirrors = read_site(tmp_path / "bundle/site.yaml").mirrors
    assert {prefix.rstrip(":") for prefix in mirrors} == set(ORIGIN_KINDS) == set(MIRROR_FOLDERS)


def test_a_second_run_writes_nothing(store: Store, tmp_path: Path) -> None:
    wanted, folder = everything(store), tmp_path / "bundle"
    first = export_mirror(wanted, store, folder, SilentReporter())
    before = {path: (folder / path).stat() for path in paths(folder)}
    assert export_mirror(wanted, store, folder, SilentReporter()) == replace(first, new=0, new_size=0)
    after = {path: (folder / path).stat() for path in paths(folder)}
    assert [(stat.st_ino, stat.st_mtime_ns) for stat in before.values()] == [
        (after[path].st_ino, after[path].st_mtime_ns) for path in before
    ]
    hello = folder / "debian/pool/main/h/hello/hello_1.0_all.deb"
    assert hello.samefile(store.blob(wanted.debian["hello_1.0_all.deb"].sha256)), "one disk holds it once"
    hello.unlink()
    hello.write_bytes(b"package hello")  # a copy is as good
    node = hello.stat().st_ino
    assert export_mirror(wanted, store, folder, SilentReporter()).new == 0
    assert hello.stat().st_ino == node


def test_a_hard_link_is_as_damaged_as_the_store(store: Store, tmp_path: Path) -> None:
    """Who copies the folder to another site must not find it there."""
    folder, wanted = tmp_path / "bundle", lock(deb(store, "hello"))
    export_mirror(wanted, store, folder, SilentReporter())
    (package,) = (folder / mirror_path(entry) for entry in list_inputs(wanted, manifest=True))
    package.chmod(0o644)
    package.write_bytes(b"package h3llo"[: package.stat().st_size])
    with pytest.raises(InputError, match=r"digest mismatch|corrupt blob|damaged"):
        export_mirror(wanted, store, folder, SilentReporter())
    deb(store, "hello")  # as the next `fetch` does
    export_mirror(wanted, store, folder, SilentReporter())
    assert package.read_bytes() == b"package hello"


@pytest.mark.parametrize(
    "text", ['{"manifests": 5}', '{"manifests": ["x", {}, {"digest": "sha256:1", "annotations": "b"}]}', "[1]", "{"]
)
def test_an_index_of_another_form_is_written_again(store: Store, tmp_path: Path, text: str) -> None:
    folder, wanted = tmp_path / "bundle", lock(image=base(store))
    export_mirror(wanted, store, folder, SilentReporter())
    (index,) = folder.glob("oci/**/index.json")
    expected = index.read_text()
    index.write_text(text)
    export_mirror(wanted, store, folder, SilentReporter())
    assert index.read_text() == expected


def test_files_of_holes_are_replaced(store: Store, tmp_path: Path) -> None:
    """Another user may put them into an open folder."""
    folder, wanted = tmp_path / "bundle", lock(deb(store, "hello"))
    export_mirror(wanted, store, folder, SilentReporter())
    (package,) = (mirror_path(entry) for entry in list_inputs(wanted, manifest=True))
    texts = (folder / "images/demo.lock").read_bytes()
    for path in (package, "images/demo.lock"):
        (folder / path).unlink()
        (folder / path).touch()
        os.truncate(folder / path, 15 << 40)
    with ends_within(30):
        export_mirror(wanted, store, folder, SilentReporter())
    assert (folder / "images/demo.lock").read_bytes() == texts
    assert (folder / package).stat().st_size < 1000


def test_a_second_image_adds_new_files_only(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    export_mirror(lock(deb(store, "hello"), image=base(store)), store, folder, SilentReporter())
    other = base(store, tag="25.11")
    newer = replace(other, digest=blob(store, store.blob(other.digest).read_bytes() + b"\n"))
    second = lock(deb(store, "hello"), deb(store, "bash"), image=newer, name="second")
    assert export_mirror(second, store, folder, SilentReporter()).new == 2  # the package and the manifest
    index = json.loads((folder / "oci/registry.example:5000/group/base/index.json").read_text())
    tags = [item["annotations"]["org.opencontainers.image.ref.name"] for item in index["manifests"]]
    assert tags == ["25.10", "25.11"]
    assert sorted(path.name for path in (folder / "images").iterdir()) == ["demo.lock", "second.lock"]


def test_a_tag_names_the_newest_image_for_each_platform(store: Store, tmp_path: Path) -> None:
    folder, first = tmp_path / "bundle", base(store)
    content = store.blob(first.digest).read_bytes()
    second, arm = (replace(first, digest=blob(store, content + end)) for end in (b"\n", b"\n\n"))
    export_mirror(lock(image=first), store, folder, SilentReporter())
    export_mirror(replace(lock(image=arm), arch="arm64"), store, folder, SilentReporter())
    export_mirror(lock(image=second), store, folder, SilentReporter())
    index = json.loads((folder / "oci/registry.example:5000/group/base/index.json").read_text())
    named = {item["digest"]: "annotations" in item for item in index["manifests"]}
    digests = [f"sha256:{image.digest}" for image in (first, arm, second)]
    assert named == dict(zip(digests, (False, True, True), strict=True))
    assert all((folder / mirror_path(entry)).is_file() for entry in list_inputs(lock(image=first), manifest=True))


def test_a_base_by_digest_has_no_name_that_is_a_tag_and_keeps_one_that_is(store: Store, tmp_path: Path) -> None:
    """An image without a name was taken for each tag of its repository."""
    folder, tagged = tmp_path / "bundle", base(store)
    repository = tagged.reference.rpartition(":")[0]
    pinned = replace(tagged, reference=f"{repository}@sha256:{tagged.digest}")
    names = []
    for image in (pinned, tagged, pinned):
        export_mirror(lock(image=image), store, folder, SilentReporter())
        (entry,) = json.loads((folder / f"oci/{repository}/index.json").read_text())["manifests"]
        names.append(entry["annotations"]["org.opencontainers.image.ref.name"])
    assert names == [pinned.reference, "25.10", "25.10"]


def test_copies_on_another_disk(store: Store, tmp_path: Path) -> None:
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("/dev/shm is not another file system here")
    folder = memory / f"envbuild-test-{os.getpid()}"
    wanted = everything(store)
    try:
        assert export_mirror(wanted, store, folder, SilentReporter()).new == 14
        assert export_mirror(wanted, store, folder, SilentReporter()).new == 0
        for entry in list_inputs(wanted, manifest=True):
            copy = folder / mirror_path(entry)
            assert copy.stat().st_mode & 0o777 == 0o644
            assert hashlib.sha256(copy.read_bytes()).hexdigest() == entry.sha256
        damaged = wanted.debian["hello_1.0_all.deb"].sha256
        store.blob(damaged).write_bytes(b"package hellx")
        (folder / "debian/pool/main/h/hello/hello_1.0_all.deb").unlink()
        with pytest.raises(InputError, match=f"corrupt blob in the store: expected sha256 {damaged}"):
            export_mirror(wanted, store, folder, SilentReporter())
        assert not (folder / "debian/pool/main/h/hello/hello_1.0_all.deb").exists()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_keys_added_to_the_site_file_are_preserved(store: Store, tmp_path: Path) -> None:
    export_mirror(lock(), store, tmp_path / "bundle", SilentReporter())
    path = tmp_path / "bundle/site.yaml"
    path.write_text(path.read_text() + "  github:demo/demo: [sources]\npartition: gpu\n")
    export_mirror(lock(deb(store, "hello")), store, tmp_path / "bundle", SilentReporter())
    assert read_site(path).nodes.partition == "gpu"


def test_a_commit_is_exported_as_its_tarball(store: Store, tmp_path: Path) -> None:
    """Made from a repository here; the other site needs neither the repository nor git."""
    from envbuild.lock.git.lock_commit import lock_commit
    from envbuild.net.transport import Transport
    from envbuild.spec.recipe import Git

    repo = Repo.make(tmp_path / "git/acme/tool", {"hello.c": b"int main(void) { return 0; }\n"})
    site = Site(store.root, mirrors={"github:": (str(tmp_path / "git"),), "python:": ()}, use_host=False)
    found = lock_commit(
        site, Transport(site.network()), store, SilentReporter(), Git("tool", "github:acme/tool", repo.head), {}
    )
    wanted = lock(found)
    assert export_mirror(wanted, store, tmp_path / "bundle", SilentReporter()) == MirrorStats(
        1, found.size, 1, found.size
    )
    other = Store.open(tmp_path / "other")
    fetch(wanted, other, read_site(tmp_path / "bundle/site.yaml"), SilentReporter(), pause=0.001)
    assert inputs_to_fetch(wanted, other) == []
    assert not (other.root / "git").exists()


def test_a_link_in_the_place_of_a_copy_changes_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another user makes it who can write the folder."""
    source, target, secret = (tmp_path / name for name in ("blob", "copy", "secret"))
    source.write_bytes(b"x")
    secret.touch(0o600)

    def replace_target(descriptor: int) -> None:
        target.unlink()
        target.symlink_to(secret)

    monkeypatch.setattr(os, "fsync", replace_target)
    copy_file(source, target)
    assert secret.stat().st_mode & 0o777 == 0o600


def test_the_holder_of_a_folder_is_named_and_waited_for(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any user who may read the folder can lock it."""
    monkeypatch.setattr(mirror_folder, "LONGEST", 0.2)
    monkeypatch.setattr("envbuild.core.store.lock_holder.PATIENCE", 0.1)
    folder, reporter = tmp_path / "bundle", SilentReporter()
    folder.mkdir()
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(PublishError, match="its lock was held for 0 s"):
        export_mirror(everything(store), store, folder, reporter)
    os.close(handle)
    assert f"{folder} is in use by process {os.getpid()}" in reporter.lines[0]
    assert export_mirror(everything(store), store, folder, reporter).files == 14
