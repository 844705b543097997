"""The folder that an air-gapped site builds from: written, read back through its own site file, added to, damaged."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from gitmaker import Repo

from envbuild.carry import MIRRORS, Carried, carry, place_of
from envbuild.console import Quiet
from envbuild.errors import InputError, LockError, PublishError, SpecError
from envbuild.fetch import fetch, missing
from envbuild.fetchcommand import fetch_images
from envbuild.lock.lockfile import BaseImage, DebianFile, Lock, PythonFile, SourceFile, UnitLock, read_lock, write_lock
from envbuild.project import Project
from envbuild.resolve import lock_request, remembered
from envbuild.site import KINDS, Site, read_site
from envbuild.spec import load
from envbuild.store import Store
from envbuild.supply import Input, inputs
from envbuild.workspace import Workspace

pytestmark = pytest.mark.unit
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")


def blob(store: Store, content: bytes) -> str:
    sha256 = hashlib.sha256(content).hexdigest()
    store.blob(sha256).write_bytes(content)
    return sha256


def deb(store: Store, name: str, archive: str = "debian:trixie/main", path: str = "") -> DebianFile:
    content = f"package {name}".encode()
    path = path or f"pool/main/{name[0]}/{name}/{name}_1.0_all.deb"
    return DebianFile(path.rpartition("/")[2], name, "1.0", archive, path, len(content), blob(store, content))


def wheel(store: Store, name: str, origin: str = "") -> PythonFile:
    content = f"wheel {name} {origin}".encode()
    return PythonFile(f"{name}-1.0-py3-none-any.whl", name, "1.0", len(content), blob(store, content), origin)


def source(store: Store, file: str, origin: str, **more: bool) -> SourceFile:
    content = f"source {file} {origin}".encode()
    return SourceFile(file, origin, blob(store, content), len(content), **more)


def base(store: Store, name: str = "base", tag: str = "25.10") -> BaseImage:
    config, layer = (f"{part} of {name}".encode() for part in ("config", "layer"))
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"digest": f"sha256:{blob(store, config)}"},
            "layers": [{"digest": f"sha256:{blob(store, layer)}"}],
        }
    ).encode()
    digests = [hashlib.sha256(content).hexdigest() for content in (config, layer)]
    return BaseImage(
        f"registry.example:5000/group/{name}:{tag}", blob(store, manifest), digests[0],
        ((digests[1], len(layer), "application/vnd.oci.image.layer.v1.tar"),), "debian:13",
    )  # fmt: skip


def lock(*entries: DebianFile | PythonFile | SourceFile, image: BaseImage | None = None, name: str = "demo") -> Lock:
    return Lock(
        image=name, inputs="", base="debian:13", arch="amd64", python="3.13", epoch=0, tools={}, versions={},
        debian={entry.file: entry for entry in entries if isinstance(entry, DebianFile)},
        python_files={entry.file: entry for entry in entries if isinstance(entry, PythonFile)},
        sources={entry.file: entry for entry in entries if isinstance(entry, SourceFile)},
        units={}, base_image=image, distribution="debian:13",
    )  # fmt: skip


def everything(store: Store) -> Lock:
    """One input of every kind."""
    return lock(
        deb(store, "hello"),
        deb(store, "libssl3", "debian-security:trixie-security/main", "pool/updates/main/o/openssl/libssl3_3_all.deb"),
        deb(store, "gcc", "ubuntu:jammy/universe"),
        deb(store, "cuda", "apt:nvidia-cuda/ubuntu2204", "cuda_13_all.deb"),
        wheel(store, "numpy"),
        wheel(store, "torch", "pip:pytorch/cu113"),
        source(store, "ucx-1.20.1.tar.gz", "github:openucx/ucx@v1.20.1"),
        source(store, "ucc-0123456789ab.tar", f"github:openucx/ucc@{COMMIT}", git=True),
        source(store, "patch.orig.tar.xz", "debian:pool/main/p/patch/patch.orig.tar.xz"),
        source(store, "efa.tar.gz", "vendor:efa/installer/efa.tar.gz"),
        source(store, "own.tar.gz", "file:own/own.tar.gz"),
        image=base(store),
    )


def paths(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_every_kind_of_input_is_found_again_through_the_folders_own_site(store: Store, tmp_path: Path) -> None:
    wanted, folder = everything(store), tmp_path / "bundle"
    image = wanted.base_image
    assert image is not None
    done = carry(wanted, store, folder, Quiet())
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
    fetch(wanted, other, site, Quiet(), manifest=True, pause=0.001)
    assert missing(wanted, other, manifest=True) == []
    for entry in inputs(wanted):
        other.check_blob(entry.sha256)


def test_the_site_file_has_a_mirror_for_every_kind(store: Store, tmp_path: Path) -> None:
    carry(lock(), store, tmp_path / "bundle", Quiet())
    mirrors = read_site(tmp_path / "bundle/site.yaml").mirrors
    # Repositories of other hosts are only ever submodules, which are in the tarballs.
    assert {prefix.rstrip(":") for prefix in mirrors} == set(KINDS) - {"git"} == set(MIRRORS)


def test_a_second_run_writes_nothing(store: Store, tmp_path: Path) -> None:
    wanted, folder = everything(store), tmp_path / "bundle"
    first = carry(wanted, store, folder, Quiet())
    before = {path: (folder / path).stat() for path in paths(folder)}
    assert carry(wanted, store, folder, Quiet()) == replace(first, new=0, new_size=0)
    after = {path: (folder / path).stat() for path in paths(folder)}
    assert [(stat.st_ino, stat.st_mtime_ns) for stat in before.values()] == [
        (after[path].st_ino, after[path].st_mtime_ns) for path in before
    ]
    hello = folder / "debian/pool/main/h/hello/hello_1.0_all.deb"
    assert hello.samefile(store.blob(wanted.debian["hello_1.0_all.deb"].sha256)), "one disk holds it once"
    hello.unlink()
    hello.write_bytes(b"package hello")  # a copy is as good
    node = hello.stat().st_ino
    assert carry(wanted, store, folder, Quiet()).new == 0
    assert hello.stat().st_ino == node


def test_a_second_image_adds_what_is_new(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    carry(lock(deb(store, "hello"), image=base(store)), store, folder, Quiet())
    other = base(store, tag="25.11")
    newer = replace(other, digest=blob(store, store.blob(other.digest).read_bytes() + b"\n"))
    second = lock(deb(store, "hello"), deb(store, "bash"), image=newer, name="second")
    assert carry(second, store, folder, Quiet()).new == 2  # the package and the manifest
    index = json.loads((folder / "oci/registry.example:5000/group/base/index.json").read_text())
    tags = [item["annotations"]["org.opencontainers.image.ref.name"] for item in index["manifests"]]
    assert tags == ["25.10", "25.11"]
    assert sorted(path.name for path in (folder / "images").iterdir()) == ["demo.lock", "second.lock"]


def test_a_tag_names_the_newest_image_for_each_platform(store: Store, tmp_path: Path) -> None:
    folder, first = tmp_path / "bundle", base(store)
    content = store.blob(first.digest).read_bytes()
    second, arm = (replace(first, digest=blob(store, content + end)) for end in (b"\n", b"\n\n"))
    carry(lock(image=first), store, folder, Quiet())
    carry(replace(lock(image=arm), arch="arm64"), store, folder, Quiet())
    carry(lock(image=second), store, folder, Quiet())
    index = json.loads((folder / "oci/registry.example:5000/group/base/index.json").read_text())
    named = {item["digest"]: "annotations" in item for item in index["manifests"]}
    digests = [f"sha256:{image.digest}" for image in (first, arm, second)]
    assert named == dict(zip(digests, (False, True, True), strict=True))
    assert all((folder / place_of(entry)).is_file() for entry in inputs(lock(image=first), manifest=True))


@pytest.mark.parametrize("content", [b"", b"package hellx", b"longer than the package"])
def test_what_is_damaged_is_written_anew(store: Store, tmp_path: Path, content: bytes) -> None:
    wanted, folder, talk = lock(deb(store, "hello")), tmp_path / "bundle", Quiet()
    carry(wanted, store, folder, Quiet())
    hello = folder / "debian/pool/main/h/hello/hello_1.0_all.deb"
    hello.unlink()  # it is a link into the store
    hello.write_bytes(content)
    assert carry(wanted, store, folder, talk).new == 1
    assert hello.read_bytes() == b"package hello"
    assert talk.lines == [f"{hello} had other content than the lock says; it is written anew"]


def test_a_file_that_another_image_needs_is_not_replaced(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    carry(lock(source(store, "x.tar.gz", "github:one/x@v1")), store, folder, Quiet())
    other = lock(source(store, "x.tar.gz", "github:two/x@v1"), name="other")
    with pytest.raises(PublishError, match="another image in this folder needs a different file") as caught:
        carry(other, store, folder, Quiet())
    assert caught.value.hint == "carry other to a folder of its own:  envbuild fetch other --to FOLDER"
    assert not (folder / "images/other.lock").exists()
    newer = lock(source(store, "x.tar.gz", "github:one/x@v2"))  # of the image itself it may be
    assert carry(newer, store, folder, Quiet()).new == 1


def test_damage_in_the_store_does_not_travel(store: Store, tmp_path: Path) -> None:
    wanted, folder = lock(deb(store, "hello")), tmp_path / "bundle"
    store.blob(wanted.debian["hello_1.0_all.deb"].sha256).write_bytes(b"package hellx")
    with pytest.raises(InputError, match="the store holds damaged content"):
        carry(wanted, store, folder, Quiet())
    assert paths(folder) == set()


def test_copies_on_another_disk(store: Store, tmp_path: Path) -> None:
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("/dev/shm is no other file system here")
    folder = memory / f"envbuild-test-{os.getpid()}"
    wanted = everything(store)
    try:
        assert carry(wanted, store, folder, Quiet()).new == 14
        assert carry(wanted, store, folder, Quiet()).new == 0
        for entry in inputs(wanted, manifest=True):
            copy = folder / place_of(entry)
            assert copy.stat().st_mode & 0o777 == 0o644
            assert hashlib.sha256(copy.read_bytes()).hexdigest() == entry.sha256
        damaged = wanted.debian["hello_1.0_all.deb"].sha256
        store.blob(damaged).write_bytes(b"package hellx")
        (folder / "debian/pool/main/h/hello/hello_1.0_all.deb").unlink()
        with pytest.raises(InputError, match=f"damaged content: sha256 {damaged}"):
            carry(wanted, store, folder, Quiet())
        assert not (folder / "debian/pool/main/h/hello/hello_1.0_all.deb").exists()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_what_a_killed_run_left_goes_away(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    (folder / ".new").mkdir(parents=True)
    (folder / ".new/half").write_bytes(b"x")
    carry(lock(deb(store, "hello")), store, folder, Quiet())
    assert not (folder / ".new").exists()


@pytest.mark.parametrize(
    "entry",
    [
        DebianFile("x.deb", "x", "1", "debian:trixie/main", "../../x.deb", 1, "0" * 64),
        DebianFile("x.deb", "x", "1", "apt:../..", "x.deb", 1, "0" * 64),
        DebianFile("x.deb", "x", "1", "images:trixie", "x.deb", 1, "0" * 64),
        PythonFile("x.whl", "x", "1", 1, "0" * 64, "pip:../../etc"),
        SourceFile("x.tar", "debian:../../x.tar", "0" * 64),
    ],
)
def test_a_lock_cannot_write_elsewhere(entry: Input) -> None:
    with pytest.raises(LockError, match="names a path outside"):
        place_of(entry)


def test_a_folder_that_is_something_else(store: Store, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("schema: 1\nmirrors: {debian: [debian]}\n")
    with pytest.raises(SpecError, match="is the site of something else") as caught:
        carry(lock(deb(store, "hello")), store, tmp_path, Quiet())
    assert caught.value.hint == "choose an empty folder:  --to FOLDER"
    assert not (tmp_path / "debian").exists()
    (tmp_path / "file").touch()
    with pytest.raises(PublishError, match="cannot be written"):
        carry(lock(), store, tmp_path / "file", Quiet())


def test_keys_added_to_the_site_file_stay(store: Store, tmp_path: Path) -> None:
    carry(lock(), store, tmp_path / "bundle", Quiet())
    path = tmp_path / "bundle/site.yaml"
    path.write_text(path.read_text() + "  git: [sources]\npartition: gpu\n")
    carry(lock(deb(store, "hello")), store, tmp_path / "bundle", Quiet())
    assert read_site(path).partition == "gpu"


def written(folder: Path, name: str, entries: dict[str, DebianFile]) -> None:
    """An image of a project, and its lock."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    spec = folder / "images" / f"{name}.yaml"
    spec.write_text("schema: 1\ntarget: node\nbase: debian:13\nlayers: {}\n")
    resolution = remembered(load(name, Project(folder)), Project(folder))
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
    carry(lock(first, second), away, tmp_path / "mirror", Quiet())
    site = read_site(tmp_path / "mirror/site.yaml")
    assert project.root is not None
    written(project.root, "one", {first.file: first})
    written(project.root, "two", {second.file: second, gone.file: gone})
    here = Workspace(project, replace(site, store=store.root), store, Quiet())
    ((row, text),) = fetch_images(["one"], here, None)
    assert row == {"image": "one", "store": str(store.root), "files": 1, "bytes": 13, "warnings": []}
    assert text.endswith("next:     envbuild make one   (needs no network)")
    assert store.has_blob(first.sha256)
    told = fetch_images(["two", "one"], here, tmp_path / "bundle")
    row, text = next(told)  # what is whole is carried and told, and only then what the other lacks
    counts = {"files": 1, "bytes": 13, "new": 1, "new_bytes": 13}
    assert row == {"image": "one", "to": str(tmp_path / "bundle"), **counts, "warnings": []}
    assert f"ln -s {tmp_path / 'bundle/site.yaml'} site.yaml && envbuild make one" in text
    with pytest.raises(InputError) as caught:
        next(told)
    assert [finding.message.split(" (")[0] for finding in caught.value.findings] == ["the Debian package gone 1.0"]
    assert (tmp_path / "bundle/images/one.lock").is_file() and not (tmp_path / "bundle/images/two.lock").exists()
    assert read_site(tmp_path / "bundle/site.yaml").places("debian:")[1] == (str(tmp_path / "bundle/debian"),)
    ((row, _),) = fetch_images(["one"], here, tmp_path / "bundle")
    assert row == {"image": "one", "to": str(tmp_path / "bundle"), **counts, "new": 0, "new_bytes": 0, "warnings": []}


def test_all_that_several_images_lack_is_told_at_the_end(store: Store, project: Project, tmp_path: Path) -> None:
    away = Store.open(tmp_path / "away")
    assert project.root is not None
    ubuntu, cuda = deb(away, "gcc", "ubuntu:jammy/main"), deb(away, "cuda", "apt:nvidia-cuda/x", "cuda_13_all.deb")
    for name, entries in (("one", [deb(store, "hello")]), ("two", [ubuntu]), ("three", [ubuntu, cuda])):
        written(project.root, name, {entry.file: entry for entry in entries})
    talk, bare = Quiet(), Site(store.root, mirrors={"python:": ()}, use_host=False, where="site.yaml")
    told = fetch_images(["two", "three", "one"], Workspace(project, bare, store, talk), tmp_path / "bundle")
    assert next(told)[0]["image"] == "one"
    with pytest.raises(InputError) as caught:
        next(told)
    assert caught.value.exit_code == 10
    assert [finding.message.partition(",")[0] for finding in caught.value.findings] == [
        "no place is known for ubuntu:jammy/main",
        "no place is known for apt:nvidia-cuda/x",
    ]
    assert talk.lines[-1] == (
        "all of these images: these lines of site.yaml would supply the rest, with your places in them:\nmirrors:\n"
        '  ubuntu: [ADDRESS-OR-FOLDER]\n  "apt:nvidia-cuda/x": [ADDRESS-OR-FOLDER]'
    )


def test_a_file_that_stands_in_the_way_does_not_keep_the_others(store: Store, project: Project, tmp_path: Path) -> None:
    """Each image has what the folder does not take from it told at the end, beside what another lacks."""
    assert project.root is not None
    here, gone = deb(store, "hello"), replace(deb(store, "gone"), sha256="0" * 64)
    other = replace(deb(store, "bash"), path=here.path)
    for name, entry in (("one", here), ("two", other), ("three", gone), ("four", deb(store, "four"))):
        written(project.root, name, {entry.file: entry})
    bare = Site(store.root, mirrors={"python:": ()}, use_host=False)
    told = fetch_images(["one", "two", "three", "four"], Workspace(project, bare, store, Quiet()), tmp_path / "bundle")
    assert [next(told)[0]["image"], next(told)[0]["image"]] == ["one", "four"]
    with pytest.raises(InputError) as caught:
        next(told)
    (taken, lacking) = caught.value.findings
    assert "another image in this folder needs a different file" in taken.message
    assert lacking.message.startswith("no place is known for debian:trixie/main")


def test_an_image_that_cannot_be_locked_does_not_keep_the_others(
    store: Store, project: Project, tmp_path: Path
) -> None:
    here = deb(store, "hello")
    assert project.root is not None
    for name in ("one", "two"):
        written(project.root, name, {here.file: here})
    (project.root / "images/two.lock").unlink()
    bare = Site(store.root, mirrors={"python:": ()}, use_host=False)
    with pytest.raises(InputError):
        list(fetch_images(["two", "one"], Workspace(project, bare, store, Quiet()), tmp_path / "bundle"))
    assert [path.name for path in (tmp_path / "bundle/images").iterdir()] == ["one.lock"]


def test_a_commit_is_carried_as_its_tarball(store: Store, tmp_path: Path) -> None:
    """Made from a repository here; the other site needs neither the repository nor git."""
    from envbuild.lock.git import lock_git
    from envbuild.lock.transport import Transport
    from envbuild.recipe import Git

    repo = Repo.make(tmp_path / "git/acme/tool", {"hello.c": b"int main(void) { return 0; }\n"})
    site = Site(store.root, mirrors={"github:": (str(tmp_path / "git"),), "python:": ()}, use_host=False)
    found = lock_git(site, Transport(site), store, Quiet(), Git("tool", "github:acme/tool", repo.head), {})
    wanted = lock(found)
    assert carry(wanted, store, tmp_path / "bundle", Quiet()) == Carried(1, found.size, 1, found.size)
    other = Store.open(tmp_path / "other")
    fetch(wanted, other, read_site(tmp_path / "bundle/site.yaml"), Quiet(), pause=0.001)
    assert missing(wanted, other) == []
    assert not (other.root / "git").exists()
