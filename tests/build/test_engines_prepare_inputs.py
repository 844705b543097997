"""Inputs of a unit as folders: equal on every machine, and only with the content that the lock names."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from envbuild.build.engines.prepare_inputs import link_blobs, prepare_inputs, unpack_archive
from envbuild.build.engines.safe_extract import extract_zip
from envbuild.build.plan.units import Blob, Input, Plan, Unit
from envbuild.core.bombs import UnpackedFiles
from envbuild.core.console import SilentReporter
from envbuild.core.errors import InputError
from envbuild.core.fixed_time import TIME
from envbuild.core.store.store import Store
from envbuild.oci.config import ImageConfig
from envbuild.publish.rebuild.temporary_store import link_inputs
from tests.support.stored_inputs import lock
from tests.support.time_limit import ends_within
from tests.support.tiny_root import make_deb, tiny_deb

pytestmark = pytest.mark.unit


def add(store: Store, content: bytes) -> str:
    (store.root / "tmp/new").write_bytes(content)
    return store.add_blob(store.root / "tmp/new")


def item(name: str, kind: str, blobs: list[tuple[str, str]], texts: list[tuple[str, str]] | None = None) -> Any:
    return {"name": name, "kind": kind, "blobs": blobs, "texts": texts or []}


def archive(*names: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size, info.mode = 1, 0o755
            tar.addfile(info, io.BytesIO(b"x"))
    return file.getvalue()


def zipped(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as bundle:
        for name in names:
            info = zipfile.ZipInfo(name)
            info.external_attr = 0o100755 << 16
            bundle.writestr(info, "x")
    return file.getvalue()


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_files_and_texts_have_the_fixed_time(store: Store, tmp_path: Path) -> None:
    wheel = add(store, b"wheel")
    given = item("python", "files", [("a.whl", wheel), ("deep/b.whl", wheel)], [("conf/pins.txt", "a==1\n")])
    assert prepare_inputs(store, [given, item("more", "files", [("c", wheel)])], tmp_path / "inputs") == [wheel]
    folder = tmp_path / "inputs/python"
    assert files(folder) == ["a.whl", "conf/pins.txt", "deep/b.whl"]
    assert (folder / "conf/pins.txt").read_text() == "a==1\n"
    assert (folder / "a.whl").stat().st_ino == store.blob(wheel).stat().st_ino
    assert {path.stat().st_mtime for path in (folder, *folder.rglob("*"))} == {TIME}


def test_only_the_content_of_the_lock_is_taken(store: Store, tmp_path: Path) -> None:
    sha256 = add(store, b"wheel")
    store.blob(sha256).write_bytes(b"wrong")
    given = item("python", "files", [("a.whl", sha256)])
    assert prepare_inputs(store, [given], tmp_path / "trusted", [sha256]) == []
    with pytest.raises(InputError):
        prepare_inputs(store, [given], tmp_path / "checked")
    with pytest.raises(InputError) as caught:
        prepare_inputs(store, [given], tmp_path / "missing")
    assert caught.value.where == "python"


@pytest.mark.parametrize("kind", ["files", "debian", "tree"])
def test_what_a_group_shares_is_compared_as_it_is_copied(kind: str, store: Store, tmp_path: Path) -> None:
    """Another member may write it after a comparison: also one that another unit made."""
    content = archive("top/a", "top/b") if kind == "tree" else make_deb("Package: a", [])
    sha256 = add(store, content)
    store.root.chmod(0o3775)
    store = Store.open(store.root)
    given = item("x", kind, [("a.deb", sha256)])
    assert prepare_inputs(store, [given], tmp_path / "good") == [sha256]
    names = {path.name for path in (tmp_path / "good").rglob("*") if path.is_file()}
    assert names == {"files": {"a.deb"}, "debian": {"a.deb", "Packages"}, "tree": {"a", "b"}}[kind]
    store.blob(sha256).write_bytes(archive("top/a", "top/evil"))
    with pytest.raises(InputError):
        prepare_inputs(store, [given], tmp_path / "bad", [sha256])
    assert not [path for path in (tmp_path / "bad").rglob("*") if path.is_file()]


@pytest.mark.parametrize("changed", [False, True])
def test_the_inputs_of_a_rebuild_are_no_files_of_other_members(changed: bool, store: Store, tmp_path: Path) -> None:
    sha256 = add(store, b"content")
    blob = Blob("a", sha256, 7)
    plan = Plan("x", (Unit("u", "u", (), inputs=(Input("files", "files", (blob,)),)),), ImageConfig(), 0)
    store.root.chmod(0o3775)
    store = Store.open(store.root)
    if changed:
        store.blob(sha256).write_bytes(b"another")
    target, empty = Store.open(tmp_path / "target"), lock()
    if changed:
        with pytest.raises(InputError):
            link_inputs(plan, empty, store, target, SilentReporter())
        return
    link_inputs(plan, empty, store, target, SilentReporter())
    assert target.blob(sha256).read_bytes() == b"content" and target.blob(sha256).stat().st_nlink == 1


@pytest.mark.parametrize("pack", [archive, zipped])
def test_an_archive_loses_its_single_top_folder(pack: Any, store: Store, tmp_path: Path) -> None:
    for number, (names, found) in enumerate(
        (
            (("ucx-1/configure", "ucx-1/src/a.c"), ["configure", "src/a.c"]),
            (("pax_global_header", "ucx-1/configure"), ["configure"]),
            (("one/a", "two/b"), ["one/a", "two/b"]),
            (("file",), ["file"]),
        )
    ):
        sha256 = add(store, pack(*names))
        name = {archive: "x.tar.gz", zipped: "x.zip"}[pack]
        prepare_inputs(store, [item("archives", "tree", [(name, sha256)])], tmp_path / str(number))
        folder = tmp_path / str(number) / "archives"
        assert files(folder) == found
        assert all(os.access(folder / name, os.X_OK) for name in found)
        folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
        assert {path.stat().st_mtime for path in folders} == {TIME}
        assert [path.name for path in folder.parent.iterdir()] == ["archives"]


def changed(content: bytes, at: int, *values: bytes) -> bytes:
    """Return a zip archive with other values in its local (`at`) and its central header (`at` + 2)."""
    data = bytearray(content)
    for signature, place in ((b"PK\3\4", at), (b"PK\1\2", at + 2)):
        begin = data.find(signature) + place
        data[begin : begin + 2] = values[0]
    return bytes(data)


def dated(time: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("a/b")
        info.pax_headers = {"mtime": time}
        tar.addfile(info)
    return file.getvalue()


def flipped(pack: Any) -> bytes:
    """Return a compressed archive with damage in the middle."""
    packed = pack(bytes(range(256)) * 400 + os.urandom(100_000))
    half = len(packed) // 2
    return bytes(packed[:half] + bytes(byte ^ 255 for byte in packed[half : half + 9]) + packed[half + 9 :])


CUT = {
    "text": b"no archive",
    "gzip": archive("a/b")[:40],
    "zip": zipped("a/b")[:-10],
    "encrypted": changed(zipped("a/b"), 6, b"\1\0"),
    "unknown method": changed(zipped("a/b"), 8, b"\x61\0"),
    "file and folder": zipped("a", "a/b"),
    "long name": zipped("a/" + "n" * 300),
    "no time": dated("nan"),
    "far time": dated("1e30"),
    "damaged xz": lzma.compress(gzip.decompress(archive("a/b", "a/c")))[:-60] + bytes(60),
    "flipped xz": flipped(lzma.compress),
    "flipped bzip2": flipped(bz2.compress),
    "flipped gzip": flipped(gzip.compress),
}


@pytest.mark.parametrize("content", CUT.values(), ids=CUT)  # gzip has the time in its header
def test_an_archive_that_cannot_be_unpacked(content: bytes, store: Store, tmp_path: Path) -> None:
    sha256, name = add(store, content), "x.whl" if content.startswith(b"PK") else "x.tar"
    with pytest.raises(InputError):
        prepare_inputs(store, [item("archives", "tree", [(name, sha256)])], tmp_path / "inputs")


@pytest.mark.parametrize("pack", [gzip.compress, bytes])
def test_a_tar_whose_last_member_is_a_zip_archive_is_a_tar(pack: Any, store: Store, tmp_path: Path) -> None:
    """A project may have a wheel, or an .npz file, for its tests; a zip archive ends with its directory."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, content in (("p/code.py", b"code"), ("p/tests/data.npz", zipped("code.py"))):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    content = pack(file.getvalue())
    if pack is gzip.compress:  # a stored block
        content = gzip.compress(file.getvalue(), 0)
    assert zipfile.is_zipfile(io.BytesIO(content))
    prepare_inputs(store, [item("project", "tree", [("p.tar", add(store, content))])], tmp_path / "inputs")
    assert files(tmp_path / "inputs/project") == ["code.py", "tests/data.npz"]
    assert (tmp_path / "inputs/project/code.py").read_text() == "code"
    with pytest.raises(InputError, match=r"p\.whl cannot be unpacked"):
        prepare_inputs(store, [item("project", "tree", [("p.whl", add(store, archive("a")))])], tmp_path / "more")


def test_a_tree_is_of_one_archive(store: Store, tmp_path: Path) -> None:
    """A second one could replace what a link of the first leads through, and a third be unpacked through that link."""
    contents = {"a.tar.gz": archive("a/x", "a/y"), "b.tar.gz": archive("b/x"), "c.whl": zipped("l/written")}
    blobs = [(name, add(store, content)) for name, content in contents.items()]
    for listed in (blobs, blobs[:2], []):
        with pytest.raises(InputError, match=f"a tree is of one archive, and it has {len(listed)}"):
            prepare_inputs(store, [item("tools", "tree", listed)], tmp_path / f"{len(listed)}")
    (target := tmp_path / "target").mkdir()
    for number, (name, content) in enumerate(contents.items()):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="has no folder of its own") if number else contextlib.nullcontext():
            unpack_archive(tmp_path / name, name, target)
    assert files(target) == ["x", "y"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_a_second_member_of_a_name_is_not_written_through_the_first(kind: bytes, tmp_path: Path) -> None:
    """GNU tar and bsdtar remove a link first."""
    with tarfile.open(tmp_path / "a.tar", "w") as tar:

        def add_member(name: str, content: bytes = b"", **fields: Any) -> None:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in fields.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(content))

        add_member("p/configure", b"first")
        add_member("p/x", type=kind, linkname="configure" if kind == tarfile.SYMTYPE else "p/configure")
        add_member("p/x", b"second")
        add_member("p/src", type=tarfile.DIRTYPE, mode=0o755)
        add_member("p/src/a", b"first")
        add_member("p/y", type=tarfile.SYMTYPE, linkname="src")
        add_member("p/y", type=tarfile.DIRTYPE, mode=0o755)
        add_member("p/y/a", b"second")
    (target := tmp_path / "out").mkdir()
    unpack_archive(tmp_path / "a.tar", "a.tar", target)
    contents = {name: (target / name).read_bytes() for name in files(target)}
    assert contents == {"configure": b"first", "src/a": b"first", "x": b"second", "y/a": b"second"}


@pytest.mark.parametrize(("at", "value"), [(14, b"\1"), (18, b"\2"), (22, b"\0"), (8, b"\x08")])
def test_a_zip_whose_headers_differ_is_refused(at: int, value: bytes, tmp_path: Path) -> None:
    """`unzip` reads the one in front of the content, `zipfile` the directory."""
    content = bytearray(zipped("a/b"))
    content[at : at + 1] = value
    (tmp_path / "x.whl").write_bytes(content)
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="has two headers that differ"):
        unpack_archive(tmp_path / "x.whl", "x.whl", tmp_path / "out")


def test_a_zip_with_a_second_name_of_a_member_is_refused(tmp_path: Path) -> None:
    """`unzip` and bsdtar take that of the extra field."""
    info = zipfile.ZipInfo("p/a")
    info.extra = b"up" + (5 + len("p/b")).to_bytes(2, "little") + b"\1" + bytes(4) + b"p/b"
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as bundle:
        bundle.writestr(info, "x")
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="has two names"):
        unpack_archive(tmp_path / "x.whl", "x.whl", tmp_path / "out")


@pytest.mark.parametrize("way", ["stream", "zip64", "deflated"])
def test_a_zip_with_its_sizes_in_other_places_is_read(way: str, tmp_path: Path) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return way != "stream"

        def seek(self, *arguments: Any) -> int:
            if way == "stream":
                raise OSError
            return super().seek(*arguments)

    file = Pipe()
    packed = zipfile.ZIP_DEFLATED if way == "deflated" else zipfile.ZIP_STORED
    with (
        zipfile.ZipFile(file, "w", packed) as bundle,
        bundle.open(zipfile.ZipInfo("top/a"), "w", force_zip64=way == "zip64") as member,
    ):
        member.write(b"content")
    (tmp_path / "x.whl").write_bytes(file.getvalue())
    (tmp_path / "out").mkdir()
    unpack_archive(tmp_path / "x.whl", "x.whl", tmp_path / "out")
    assert (tmp_path / "out/a").read_bytes() == b"content"


def test_a_zip_is_not_unpacked_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (target := tmp_path / "target").mkdir()
    (target / "l").symlink_to("../outside")
    (target / "f").symlink_to("../outside/f")
    for name in ("l/written", "../outside/written", "f"):
        with zipfile.ZipFile(io.BytesIO(zipped(name))) as bundle, contextlib.suppress(zipfile.BadZipFile):
            extract_zip(bundle, target, UnpackedFiles(1000))
    assert not list((tmp_path / "outside").iterdir())


@pytest.mark.parametrize(
    ("kind", "names", "twice"),
    [
        ("debian", ["Packages"], "Packages"),
        ("files", ["a", "a"], "a"),
        ("files", ["a", "a/b"], "a/b"),
        ("files", ["a/b", "a"], "a"),
        ("files", ["text"], "text"),
    ],
)
def test_two_inputs_of_one_name(kind: str, names: list[str], twice: str, store: Store, tmp_path: Path) -> None:
    """A lock may be of another user. The first one may be a hard link of a blob: its content would be replaced."""
    contents = [tiny_deb() if kind == "debian" else f"content of {number}\n".encode() for number in range(len(names))]
    digests = [add(store, content) for content in contents]
    texts = [("text", "x")] if names == ["text"] else []
    one = {**item("debs", kind, list(zip(names, digests, strict=True))), "texts": texts}
    with pytest.raises(InputError, match=f"two inputs have the name {twice}"):
        prepare_inputs(store, [one], tmp_path / "inputs")
    assert [store.blob(sha256).read_bytes() for sha256 in digests] == contents


def test_a_link_in_the_place_of_a_blob_is_not_read(tmp_path: Path) -> None:
    """Another member of the group may put it there after the digest was compared: a step would get the file."""
    root = tmp_path / "store"
    root.mkdir()
    root.chmod(0o3770)
    store, secret = Store.open(root), tmp_path / "secret.tar"
    with tarfile.open(secret, "w") as tar:
        tar.add(__file__, "top/file")
    store.blob("a" * 64).symlink_to(secret)
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="not a regular file"):
        unpack_archive(store.blob("a" * 64), "a.tar", tmp_path / "out")
    with pytest.raises(InputError, match=r"corrupt blob in the store: .* got no regular file"):
        link_blobs(store, [("file", "a" * 64)], tmp_path / "out")
    assert not store.blob("a" * 64).is_symlink() and secret.exists()
    assert list((tmp_path / "out").iterdir()) == []


def test_a_blob_of_holes_in_a_store_of_a_group_is_not_copied(tmp_path: Path) -> None:
    """It would fill the disk."""
    root = tmp_path / "store"
    root.mkdir()
    root.chmod(0o3770)
    store = Store.open(root)
    with store.blob("a" * 64).open("wb") as file:
        file.truncate(8 << 40)
    (tmp_path / "out").mkdir()
    with ends_within(30), pytest.raises(InputError, match="got far more bytes than are on the disk"):
        link_blobs(store, [("file", "a" * 64)], tmp_path / "out")
    assert not store.has_blob("a" * 64)


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o644])
def test_a_blob_that_others_may_write_is_copied_and_compared(store: Store, tmp_path: Path, mode: int) -> None:
    """`fetch --to` makes hard links, of which a user may change the modes for a group."""
    sha256 = add(store, archive("top/x"))
    store.blob(sha256).chmod(mode)
    files = item("f", "files", [("x.tar.gz", sha256)])
    prepare_inputs(store, [files], tmp_path / "a")
    linked = (tmp_path / "a/f/x.tar.gz").samefile(store.blob(sha256))
    assert linked is (mode == 0o644)
    pinned = store.pin_blob(sha256)
    assert os.path.samestat(os.fstat(pinned.fd), store.blob(sha256).stat()) is linked
    store.blob(sha256).write_bytes(b"another user's")
    for name, one in (("b", files), ("c", item("t", "tree", [("x.tar", sha256)]))):
        with pytest.raises(InputError):
            prepare_inputs(store, [one], tmp_path / name)
