"""Attributes of the folders of a stack of layers: those of layers of which they are members."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envbuild.core.store.store import Store
from envbuild.oci.layers.layer import implied_folders, stored_members
from envbuild.oci.layers.lower_view import LowerView
from envbuild.oci.layers.merged_folders import write_merged_folders
from tests.support.stored_layers import EPOCH, layer

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes marks of an overlay and other owners"),
]


def base(tree: Path) -> None:
    (tree / "opt").mkdir()
    os.setxattr(tree / "opt", "user.note", b"base")
    os.utime(tree / "opt", (1000, 1000))


def above(name: str, mode: int = 0o755) -> object:
    """Return what makes ``opt/NAME`` in the copy of /opt that an overlay makes, with other attributes."""

    def fill(tree: Path) -> None:
        (tree / "opt" / name).mkdir(parents=True)
        (tree / "opt" / name / "file").write_text(name)
        if mode == 0o755:
            os.setxattr(tree / "opt", "user.note", b"base")
        (tree / "opt").chmod(mode)
        os.utime(tree / "opt", (1000, 1000))

    return fill


def forged(store: Store, diff_id: str) -> None:
    """Give the folder that is not a member of a stored layer other attributes, as a cache of units could state them."""
    opt = store.layer_tree(diff_id) / "opt"
    opt.chmod(0o777)
    os.chown(opt, 1000, 1000)
    os.setxattr(opt, "user.note", b"forged")
    os.utime(opt, (5, 5))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")


def test_a_folder_has_the_attributes_of_the_layer_of_which_it_is_a_member(store: Store, tmp_path: Path) -> None:
    one = layer(store, "one", base)
    two = layer(store, "two", above("two"), [one])  # type: ignore[arg-type]
    assert implied_folders(store, two.diff_id) == [b"opt"]
    forged(store, two.diff_id)
    trees = [store.layer_tree(item.diff_id) for item in (one, two)]
    (tmp_path / "merged").mkdir()
    assert write_merged_folders(trees, tmp_path / "merged")
    found = (tmp_path / "merged/opt").stat()
    assert (found.st_mode & 0o7777, found.st_uid, found.st_gid, found.st_mtime) == (0o755, 0, 0, 1000)
    assert os.getxattr(tmp_path / "merged/opt", "user.note") == b"base"
    assert [str(path) for path in sorted((tmp_path / "merged").rglob("*"))] == [str(tmp_path / "merged/opt")]


def test_a_layer_is_compared_with_the_merged_folders(store: Store) -> None:
    """Else the next unit would have /opt as a member, by what a tree below states."""
    one = layer(store, "one", base)
    two = layer(store, "two", above("two"), [one])  # type: ignore[arg-type]
    honest = layer(store, "three", above("three"), [one, two])  # type: ignore[arg-type]
    forged(store, two.diff_id)
    assert layer(store, "three", above("three"), [one, two]).diff_id == honest.diff_id  # type: ignore[arg-type]
    assert [member.path for member, _ in stored_members(store, honest.diff_id)] == [b"opt/three", b"opt/three/file"]


def test_a_folder_of_a_higher_layer_is_not_covered(store: Store, tmp_path: Path) -> None:
    one = layer(store, "one", base)
    two = layer(store, "two", above("two"), [one])  # type: ignore[arg-type]
    three = layer(store, "three", above("three", 0o700), [one, two])  # type: ignore[arg-type]
    gone = layer(store, "gone", lambda tree: os.mknod(tree / "opt", 0o20000, os.makedev(0, 0)), [one, two])
    for number, top in enumerate((three, gone)):
        (merged := tmp_path / str(number)).mkdir()
        assert not write_merged_folders([store.layer_tree(item.diff_id) for item in (one, two, top)], merged)
        assert list(merged.iterdir()) == []


def test_a_folder_that_is_a_member_of_no_layer_has_the_usual_attributes(store: Store, tmp_path: Path) -> None:
    """The unit was built on others, too, which this stack does not have."""
    one = layer(store, "one", base)
    two = layer(store, "two", above("two"), [one])  # type: ignore[arg-type]
    forged(store, two.diff_id)
    (tmp_path / "merged").mkdir()
    assert write_merged_folders([store.layer_tree(two.diff_id)], tmp_path / "merged")
    found = (tmp_path / "merged/opt").stat()
    assert (found.st_mode & 0o7777, found.st_uid, found.st_mtime) == (0o755, 0, 0)
    three = layer(store, "three", above("three"), [two])  # type: ignore[arg-type]
    assert next(member.path for member, _ in stored_members(store, three.diff_id)) == b"opt"
    # its deletion hides what the layer below has in it
    gone = layer(store, "gone", lambda tree: os.mknod(tree / "opt", 0o20000, os.makedev(0, 0)), [two])
    assert [member.path for member, _ in stored_members(store, gone.diff_id)] == [b".wh.opt"]


def test_a_folder_in_the_place_of_a_file_is_that_of_its_layer(store: Store) -> None:
    one = layer(store, "one", lambda tree: (tree / "opt").write_text("a file"))
    two = layer(store, "two", base, [one])
    view = LowerView([os.fsencode(store.layer_tree(item.diff_id)) for item in (one, two)])
    found = view.entry(b"opt")
    assert found and found[0].startswith(os.fsencode(store.layer_tree(two.diff_id)))


def test_an_opaque_folder_has_the_attributes_of_the_one_below(store: Store) -> None:
    one = layer(store, "one", base)
    under = layer(store, "under", above("under"), [one])  # type: ignore[arg-type]

    def cover(tree: Path) -> None:
        above("two")(tree)  # type: ignore[operator]
        os.setxattr(tree / "opt", "user.overlay.opaque", b"y")
        os.utime(tree / "opt", (1000, 1000))

    two = layer(store, "two", cover, [one, under])
    assert b"opt" in implied_folders(store, two.diff_id)
    trees = [os.fsencode(store.layer_tree(item.diff_id)) for item in (one, under, two)]
    view = LowerView(trees)
    found = view.entry(b"opt")
    assert found and found[0] == trees[0] + b"/opt" and found[1].st_mtime == 1000 != EPOCH
    assert view.dirs(b"opt") == (trees[2] + b"/opt",)
