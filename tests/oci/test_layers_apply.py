"""Foreign layer tars: unpacked and packed again they are the same layer, and several make one."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from envbuild.core.errors import InputError
from envbuild.core.store.store import LayerRecord, Store
from envbuild.oci.layers.apply import apply_layers, apply_tar
from envbuild.oci.layers.layer import make_layer, stored_members, write_layer_tar
from tests.support.stored_layers import EPOCH, layer

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make whiteouts and other owners"),
]


def first(tree: Path) -> None:
    (tree / "a/b").mkdir(parents=True)
    for name in ("a/one", "a/two", "a/b/deep", "top"):
        (tree / name).write_text(name)
    (tree / "link").symlink_to("a/one")


def second(tree: Path) -> None:
    (tree / "a/b").mkdir(parents=True)
    os.mknod(tree / "a/one", 0o20000, os.makedev(0, 0))
    os.setxattr(tree / "a/b", "user.overlay.opaque", b"y")
    (tree / "a/b/new").write_text("new")
    os.chown(tree / "a/b/new", 7, 8)
    os.link(tree / "a/b/new", tree / "a/b/zzz")
    (tree / "a/b/new").chmod(0o4711)
    os.mkfifo(tree / "fifo")
    os.setxattr(tree / "a/b/new", "user.note", b"\xff\0value")
    (tree / "a/raw").mkdir()
    Path(os.fsdecode(os.fsencode(tree) + b"/a/raw/\xff")).write_text("x")


def packed(store: Store, record: LayerRecord) -> io.BytesIO:
    file = io.BytesIO()
    write_layer_tar(store, record, file)
    file.seek(0)
    return file


def applied(store: Store, tars: list[io.BytesIO], lowers: list[LayerRecord]) -> LayerRecord:
    with store.workdir() as work:
        folder = work / "layer"
        (folder / "tree").mkdir(parents=True)
        trees = [store.layer_tree(lower.diff_id) for lower in lowers]
        for tar in tars:
            apply_tar(tar, folder / "tree", trees)
        return make_layer(folder, trees, store, epoch=EPOCH)


def test_a_packed_layer_is_packed_again(store: Store) -> None:
    one = layer(store, "one", first)
    two = layer(store, "two", second, [one])
    assert applied(store, [packed(store, one)], []).diff_id == one.diff_id
    assert applied(store, [packed(store, two)], [one]).diff_id == two.diff_id


def test_two_tars_become_one_layer(store: Store) -> None:
    one = layer(store, "one", first)
    two = layer(store, "two", second, [one])
    both = applied(store, [packed(store, one), packed(store, two)], [])
    assert [member.path for member, _ in stored_members(store, both.diff_id)] == [
        b"a", b"a/b", b"a/b/new", b"a/b/zzz", b"a/raw", b"a/raw/\xff", b"a/two", b"fifo", b"link", b"top",
    ]  # fmt: skip


def tar_of(*entries: tuple[str, bytes, str]) -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, kind, link in entries:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mode, info.mtime = kind, link, 0o755, EPOCH
            tar.addfile(info)
    file.seek(0)
    return file


def test_implied_folders_have_the_attributes_of_the_lower_layer(store: Store) -> None:
    def private(tree: Path) -> None:
        (tree / "home/me").mkdir(parents=True)
        os.chown(tree / "home/me", 1000, 1000)
        (tree / "home/me").chmod(0o700)

    below = layer(store, "below", private)
    above = applied(store, [tar_of(("home/me/file", tarfile.REGTYPE, ""))], [below])
    assert [member.path for member, _ in stored_members(store, above.diff_id)] == [b"home/me/file"]


def test_a_folder_in_the_place_of_a_file_hides_the_lower_one(store: Store) -> None:
    below = layer(store, "below", first)
    gone = tar_of((".wh.a", tarfile.REGTYPE, ""))
    again = tar_of(("a", tarfile.DIRTYPE, ""), ("a/other", tarfile.REGTYPE, ""))
    above = applied(store, [gone, again], [below])
    assert [member.path for member, _ in stored_members(store, above.diff_id)] == [b"a/.wh..wh..opq", b"a/other"]


@pytest.mark.parametrize(
    "entries",
    [
        [("../out", tarfile.REGTYPE, "")],
        [("a/../../out", tarfile.REGTYPE, "")],
        [("link", tarfile.SYMTYPE, "/"), ("link/tmp/out", tarfile.REGTYPE, "")],
        [("link", tarfile.SYMTYPE, "/"), ("link/tmp/new/out", tarfile.REGTYPE, "")],
    ],
)
def test_nothing_leaves_the_tree(entries: list[tuple[str, bytes, str]], tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    with pytest.raises(InputError):
        apply_tar(tar_of(*entries), tmp_path / "tree", [])
    assert not (tmp_path / "out").exists()
    assert not Path("/tmp/out").exists()


@pytest.mark.parametrize("mark", [".wh.a", ".wh..wh..opq", "a/.wh..wh..opq"])
@pytest.mark.parametrize("last", [True, False])
def test_a_whiteout_hides_the_layers_below_and_not_its_own(mark: str, last: bool, tmp_path: Path) -> None:
    """In any order of the entries, and for folders that have no entry of their own."""
    tree = tmp_path / "tree"
    (tree / "a/b").mkdir(parents=True)
    (tree / "a/b/old").touch()
    entries = [("a/b/new", tarfile.REGTYPE, ""), (mark, tarfile.REGTYPE, "")]
    (tmp_path / "layer.tar").write_bytes(tar_of(*(entries if last else reversed(entries))).getvalue())
    apply_layers([tmp_path / "layer.tar"], tree)
    assert [str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()] == ["a/b/new"]
