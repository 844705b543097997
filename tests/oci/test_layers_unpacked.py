"""Trees that a build replaces: those that were unpacked from packs, because a cache of units described folders of them,
and those whose record cannot be read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from envbuild.core.errors import EngineError
from envbuild.core.store.build_records import SharedLayer
from envbuild.core.store.store import STALE, LayerRecord, Store
from envbuild.oci.layers.layer import make_layer, stored_members
from envbuild.oci.layers.lower_view import LowerView
from envbuild.oci.tar.member import Kind, Member
from envbuild.squashfs.pack.format import PackFormat
from envbuild.squashfs.pack.store_packs import PackSink, pack_path
from envbuild.squashfs.pack.unpack import ensure_trees, unpack_layers
from tests.support.stored_layers import EPOCH, layer

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(os.geteuid() != 0, reason="layers made outside of a user namespace are read by root"),
]


def fill_base(tree: Path) -> None:
    (tree / "usr").mkdir()
    (tree / "usr/low").write_text("low")


def build(store: Store, *, packed: bool = True) -> LayerRecord:
    """Return a layer over a base; its folder usr is not a member of it. Of a unit that only builds use there is no
    pack."""
    base = layer(store, "base", fill_base)
    with store.workdir() as work:
        tree = work / "layer/tree"
        (tree / "usr").mkdir(parents=True)
        (tree / "usr/up").write_text("up")
        lower = store.layer_tree(base.diff_id)
        for path in ("", "usr"):
            shutil.copystat(lower / path, tree / path)
        sinks = [PackSink(PackFormat())] if packed else []
        return make_layer(work / "layer", [lower], store, epoch=EPOCH, unit="up", sinks=sinks)


@pytest.mark.parametrize("packed", [True, False])
def test_a_built_tree_replaces_one_with_described_folders(tmp_path: Path, packed: bool) -> None:
    first, second = Store.open(tmp_path / "a"), Store.open(tmp_path / "b")
    made = build(first)
    (pack,) = (path for path in (first.root / "packs").iterdir() if path.name.startswith(made.hex))
    shutil.copy(pack, second.root / "packs")
    SharedLayer(made, pack.name, (("usr", 0o777, 12345, 12345, 1, {}),)).write(second.root / "packs")
    ensure_trees(second, [made.diff_id])
    folder = second.layer_tree(made.diff_id) / "usr"
    assert (folder.stat().st_uid, folder.stat().st_mode & 0o777) == (0, 0o755)  # not as described
    assert build(second, packed=packed) == made
    assert (folder.stat().st_uid, folder.stat().st_mode & 0o777) == (0, 0o755)
    shutil.rmtree(second.layer_path(made.diff_id))
    ensure_trees(second, [made.diff_id])  # by its record, which is of the build, too
    assert folder.stat().st_uid == 0
    before = folder.stat().st_ino
    build(second)
    assert folder.stat().st_ino != before
    build(second)
    ensure_trees(second, [made.diff_id])
    assert len(list(second.tmp.glob("removed-*"))) == 2


@pytest.mark.parametrize("mark", ["whiteout", "opaque"])
def test_a_tree_from_a_pack_deletes_what_the_layer_deletes(tmp_path: Path, mark: str) -> None:
    """Also in a folder that the layer does not list: its members begin with that mark."""
    store = Store.open(tmp_path / "a")
    base = layer(store, "base", fill_base)
    with store.workdir() as work:
        tree = work / "layer/tree"
        (tree / "usr").mkdir(parents=True)
        if mark == "whiteout":
            os.mknod(tree / "usr/low", 0o20000, os.makedev(0, 0))
        else:
            os.setxattr(tree / "usr", "user.overlay.opaque", b"y")
        (tree / "usr/up").write_text("up")
        lower = store.layer_tree(base.diff_id)
        shutil.copystat(lower / "usr", tree / "usr")
        made = make_layer(work / "layer", [lower], store, epoch=EPOCH, unit="up", sinks=[PackSink(PackFormat())])
    members = [member.path for member, _ in stored_members(store, made.diff_id)]
    assert members == [b"usr/.wh.low" if mark == "whiteout" else b"usr/.wh..wh..opq", b"usr/up"]
    other = Store.open(tmp_path / "b")
    for path in (store.root / "packs").iterdir():
        shutil.copy(path, other.root / "packs")
    SharedLayer(made, pack_path(store, made.diff_id, PackFormat()).name, ()).write(other.root / "packs")
    ensure_trees(other, [made.diff_id])
    assert [member.path for member, _ in stored_members(other, made.diff_id)] == members
    trees = [os.fsencode(found.layer_tree(item.diff_id)) for found, item in ((store, base), (other, made))]
    assert LowerView(trees).entry(b"usr/low") is None


def test_a_tree_of_an_earlier_release_is_made_again(tmp_path: Path) -> None:
    """It could lack deletions."""
    store = Store.open(tmp_path / "a")
    made = build(store)
    (pack,) = (path for path in (store.root / "packs").iterdir() if path.name.startswith(made.hex))
    SharedLayer(made, pack.name, ()).write(store.root / "packs")
    (store.layer_path(made.diff_id) / STALE).touch()
    (store.layer_tree(made.diff_id) / "usr/old").touch()
    assert not store.has_tree(made.diff_id) and store.find_layer(made.diff_id) == made
    ensure_trees(store, [made.diff_id])
    assert store.has_tree(made.diff_id) and not (store.layer_tree(made.diff_id) / "usr/old").exists()


def test_the_pack_of_another_user_has_a_limit(tmp_path: Path) -> None:
    """Another member of a group: a pack of some kB holds files of zeros of any size."""
    store = Store.open(tmp_path)
    writer, diff_id = PackSink(PackFormat()), f"sha256:{'a' * 64}"
    with writer.open(tmp_path / "pack") as sink:
        sink.begin(Member(b"zeros", Kind.FILE, 0o644, size=6 << 30))
        sink.zeros(6 << 30)
        sink.end()
        sink.close()
    pack = writer.give(tmp_path / "pack", store, diff_id)
    SharedLayer(LayerRecord(diff_id, 6 << 30, 1, "zeros"), pack.name, ()).write(pack.parent)
    os.chown(pack, 12345, 12345)
    with pytest.raises(EngineError, match=r"corrupt pack in the store: .* unpack to 6\.4 GB"):
        unpack_layers(store=str(store.root), diff_ids=[diff_id])
    assert not pack.exists()


def test_a_built_tree_replaces_one_whose_record_is_damaged(tmp_path: Path) -> None:
    """Otherwise no unit could be built on it until the store is repaired."""
    store = Store.open(tmp_path)
    made = build(store)
    record = store.layer_path(made.diff_id) / "layer.json"
    whole = record.read_bytes()
    record.write_bytes(whole.replace(b'"checksum"', b'"checksul"'))
    assert not store.has_tree(made.diff_id)
    assert build(store) == made and store.has_tree(made.diff_id)
    assert record.read_bytes() == whole
