"""Foreign layer tars: unpacked and packed again they are the same layer, and several make one."""

from __future__ import annotations

import errno
import io
import os
import tarfile
from pathlib import Path

import pytest

from envbuild.core.errors import InputError
from envbuild.core.folder_removal import discard_folder
from envbuild.core.store.store import LayerRecord, Store
from envbuild.oci.layers.apply import apply_layers
from envbuild.oci.layers.layer import make_layer, stored_members, write_layer_tar
from envbuild.oci.layers.upper_tree import apply_tar
from envbuild.oci.tar.member import Kind
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


@pytest.mark.parametrize("mode", [0o4755, 0o2755])
def test_a_hard_link_has_no_other_rights_than_its_file(store: Store, tmp_path: Path, mode: int) -> None:
    """Docker and podman would, so that one digest would be two images."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, kind, bits in (("program", tarfile.REGTYPE, 0o755), ("other", tarfile.LNKTYPE, mode)):
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.linkname = kind, bits, "program" if kind == tarfile.LNKTYPE else ""
            tar.addfile(info)
    file.seek(0)
    (tmp_path / "tree").mkdir()
    with pytest.raises(InputError, match="'other' states other rights than the file"):
        apply_tar(file, tmp_path / "tree", [])


def test_a_folder_in_the_place_of_a_file_hides_the_lower_one(store: Store) -> None:
    below = layer(store, "below", first)
    gone = tar_of((".wh.a", tarfile.REGTYPE, ""))
    again = tar_of(("a", tarfile.DIRTYPE, ""), ("a/other", tarfile.REGTYPE, ""))
    above = applied(store, [gone, again], [below])
    assert [member.path for member, _ in stored_members(store, above.diff_id)] == [b"a/.wh..wh..opq", b"a/other"]


@pytest.mark.parametrize("content", [b"text", None])
@pytest.mark.parametrize("name", ["a/.wh.file", ".wh.a", "a/.wh..wh..opq", "a/.wh...", ".wh..wh.plnk"])
def test_a_file_of_a_step_with_the_name_of_a_whiteout_is_refused(
    store: Store, tmp_path: Path, name: str, content: bytes | None
) -> None:
    """In the layer of another builder, which wrote it as it is. None: a folder."""
    below = layer(store, "below", first)
    info = tarfile.TarInfo(name)
    info.type, info.size = (tarfile.DIRTYPE, 0) if content is None else (tarfile.REGTYPE, len(content))
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        tar.addfile(info, io.BytesIO(content or b""))
    file.seek(0)
    (tmp_path / "tree").mkdir()
    with pytest.raises(InputError, match="deletes another one") as caught:
        apply_tar(file, tmp_path / "tree", [store.layer_tree(below.diff_id)])
    assert name in caught.value.message and "rename it" in caught.value.hint
    assert not [*(tmp_path / "tree").rglob("*")]


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


def member_paths(store: Store, record: LayerRecord) -> list[bytes]:
    return [member.path for member, _ in stored_members(store, record.diff_id)]


@pytest.mark.parametrize("path", ["a", "a/b"])
def test_files_below_a_folder_that_their_layer_deletes_are_in_a_new_one(store: Store, path: str) -> None:
    """The layer has no entry for the folder. Its old content and attributes are hidden, also those of folders in it."""

    def private(tree: Path) -> None:
        first(tree)
        for folder in ("a", "a/b"):
            (tree / folder).chmod(0o700)
            os.chown(tree / folder, 1000, 1000)

    below = layer(store, "below", private)
    above, slash, name = path.rpartition("/")
    entries = [(f"{above}{slash}.wh.{name}", tarfile.REGTYPE, ""), ("a/b/new", tarfile.REGTYPE, "")]
    made = applied(store, [tar_of(*entries)], [below])
    assert made.diff_id == applied(store, [tar_of(*reversed(entries))], [below]).diff_id
    members = {member.path: member for member, _ in stored_members(store, made.diff_id)}
    assert list(members) == sorted({path.encode(), b"a/b", path.encode() + b"/.wh..wh..opq", b"a/b/new"})
    assert all((item.mode, item.uid) == (0o755, 0) for item in members.values() if item.kind is Kind.DIR)


def test_an_opaque_root_hides_all_that_is_below(store: Store) -> None:
    below = layer(store, "below", first)
    entries = (".wh..wh..opq", tarfile.REGTYPE, ""), ("a/other", tarfile.REGTYPE, "")
    assert member_paths(store, applied(store, [tar_of(*entries)], [below])) == [
        b".wh.link", b".wh.top", b"a", b"a/.wh..wh..opq", b"a/other",
    ]  # fmt: skip


def unpacked(tree: Path, *entries: tuple[str, bytes, str]) -> list[str]:
    """Apply a layer to the plain tree; return its paths."""
    (tree.parent / "layer.tar").write_bytes(tar_of(*entries).getvalue())
    apply_layers([tree.parent / "layer.tar"], tree)
    return sorted(str(path.relative_to(tree)) for path in tree.rglob("*"))


def test_a_mark_in_a_folder_that_does_not_exist_makes_nothing(store: Store, tmp_path: Path) -> None:
    marks = [(name, tarfile.REGTYPE, "") for name in ("gone/.wh.x", "gone/.wh..wh..opq", "file/.wh.x")]
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/file").touch()
    assert unpacked(tmp_path / "tree", *marks) == ["file"]
    below = layer(store, "below", first)
    assert member_paths(store, applied(store, [tar_of(*marks)], [below])) == []


def test_a_folder_that_is_hidden_and_implied_again_is_a_new_one(tmp_path: Path) -> None:
    """In any order of the entries; also below a setgid folder."""
    for number, entries in enumerate([["a/b/new", ".wh.a"], [".wh.a", "a/b/new"], ["a/b/new", "a/.wh.b"]]):
        tree = tmp_path / f"{number}" / "tree"
        (tree / "a/b").mkdir(parents=True)
        for folder, mode in (("", 0o2755), ("a", 0o2770), ("a/b", 0o700)):
            os.chown(tree / folder, 7, 8)
            (tree / folder).chmod(mode)
        os.setxattr(tree / "a/b", "user.note", b"old")
        unpacked(tree, *((name, tarfile.REGTYPE, "") for name in entries))
        status = (tree / "a/b").stat()
        assert (oct(status.st_mode), status.st_uid, status.st_gid, status.st_mtime) == ("0o40755", 0, 0, 0)
        assert os.listxattr(tree / "a/b") == []
        assert oct((tree / "a").stat().st_mode) == ("0o42770" if entries[1] == "a/.wh.b" else "0o40755")


def test_an_entry_for_a_folder_replaces_its_attributes(tmp_path: Path) -> None:
    (tmp_path / "tree/a").mkdir(parents=True)
    os.setxattr(tmp_path / "tree/a", "user.note", b"old")
    unpacked(tmp_path / "tree", ("a", tarfile.DIRTYPE, ""))
    assert os.listxattr(tmp_path / "tree/a") == []


def test_an_attribute_that_no_pipe_has_is_an_error_of_the_layer(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    info = tarfile.TarInfo("pipe")
    info.type, info.pax_headers = tarfile.FIFOTYPE, {"SCHILY.xattr.user.note": "x"}
    with tarfile.open(tmp_path / "layer.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info)
    with pytest.raises(InputError, match=r"layer 1 .* attribute 'user\.note' of a file"):
        apply_layers([tmp_path / "layer.tar"], tmp_path / "tree")


def test_more_attributes_than_a_file_may_have_are_not_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ext4 has one block for them, and answers ENOSPC; other file systems have room."""
    (tmp_path / "tree").mkdir()
    info = tarfile.TarInfo("file")
    info.pax_headers = {"SCHILY.xattr.user.note": "x" * 5000}
    with tarfile.open(tmp_path / "layer.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "setxattr", refuse)
    with pytest.raises(InputError, match=r"layer 1 .* attribute 'user\.note' of a file"):
        apply_layers([tmp_path / "layer.tar"], tmp_path / "tree")


def test_a_link_that_is_deleted_after_it_was_followed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tree/a").mkdir(parents=True)
    (tmp_path / "tree/l").symlink_to("a")
    with pytest.raises(InputError):
        unpacked(tmp_path / "tree", ("l/new", tarfile.REGTYPE, ""), (".wh.l", tarfile.REGTYPE, ""))


@pytest.mark.slow_unit
def test_folders_in_folders_are_applied_however_deep_they_are(store: Store, request: pytest.FixtureRequest) -> None:
    """A path may have two thousand parts: more than Python's stack has room for."""
    path = "a/" + "d/" * 1000 + "file"
    request.addfinalizer(lambda: discard_folder(store.root))  # pytest cannot remove it
    below = layer(store, "below", first)
    above = applied(store, [tar_of((path, tarfile.REGTYPE, ""), (".wh.a", tarfile.REGTYPE, ""))], [below])
    assert len(member_paths(store, above)) == 1003


def test_a_folder_of_a_layer_has_the_same_time_after_unchanged_files_left_it(store: Store) -> None:
    """A file that only repeats the layer below is removed from the tree, which changes the time of its folder."""

    def old(tree: Path) -> None:
        (tree / "a").mkdir()
        (tree / "a/one").write_text("one")
        os.utime(tree / "a/one", (5, 5))

    def repeats(tree: Path) -> None:
        old(tree)
        (tree / "a/new").write_text("new")
        os.utime(tree / "a", (7, 7))

    below = layer(store, "below", old)
    above = layer(store, "above", repeats, [below])
    assert member_paths(store, above) == [b"a", b"a/new"]
    packed(store, above)
