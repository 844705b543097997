"""Folders of outputs: unfinished ones, older ones, and what another user puts in their place."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import PublishError
from envbuild.core.store.store import LayerRecord, Store
from envbuild.oci.layers.layer import write_layer_tar
from envbuild.oci.output_folder import STALE, open_output_folder
from tests.support.folder_content import content
from tests.support.stored_layout import write

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(os.geteuid() != 0, reason="layers that were made outside of a user namespace are read by root"),
]


def test_a_layout_that_cannot_be_replaced_remains(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "oci-layout").write_text("old")
    with pytest.raises(OSError), open_output_folder(out, "oci-layout", os.fspath) as folder:
        (tmp_path / folder.name).rmdir()
        folder.publish()
    assert content(out) == {"oci-layout": b"old"}
    with open_output_folder(out, "oci-layout", os.fspath) as folder:
        folder.publish()
    assert content(out) == {} and list(tmp_path.iterdir()) == [out]


def test_what_killed_writers_left_is_removed_but_not_what_a_live_one_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a lock of another machine may not be seen."""
    monkeypatch.setattr("envbuild.oci.output_folder.on_disk", lambda file: False)
    assert STALE > 3600
    killed, kept = (
        [tmp_path / ".out.envbuild-0123abcd", tmp_path / ".out.envbuild-0123abcd.old"],
        tmp_path / ".out.20261101",
    )
    for folder in (*killed, kept):
        (folder / "blobs").mkdir(parents=True)
        (folder / "blobs/part").write_text("part")
    out = tmp_path / "out"

    def write_one() -> None:
        with open_output_folder(out, "oci-layout", os.fspath) as folder:
            folder.publish()

    write_one()
    assert all(folder.exists() for folder in killed)  # of a minute ago
    monkeypatch.setattr("envbuild.oci.output_folder.STALE", -1)
    tmp_path.chmod(0o777)  # others can give any folder such a name
    write_one()
    assert all(folder.exists() for folder in killed)
    tmp_path.chmod(0o755)
    out.rmdir()
    with open_output_folder(out, "oci-layout", os.fspath) as live:
        assert not killed[0].exists() and killed[1].exists()  # the only layout of this name
        write_one()
        assert live.handle.is_dir() and (tmp_path / live.name).exists()
    write_one()
    assert sorted(tmp_path.iterdir()) == [kept, out]


@pytest.mark.parametrize("here", [True, False])
def test_on_a_local_disk_leftovers_are_removed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    """Not an older folder that a running writer moved away: nothing holds its lock."""
    monkeypatch.setattr("envbuild.oci.output_folder.on_disk", lambda file: here)
    left, older = tmp_path / ".out.envbuild-0123abcd", tmp_path / ".out.envbuild-4567cdef.old"
    for folder in (left, older, tmp_path / "out"):
        folder.mkdir()
    with (
        open_output_folder(tmp_path / "out", "oci-layout", os.fspath) as live,
        open_output_folder(tmp_path / "out", "oci-layout", os.fspath),
    ):
        assert left.exists() is not here and older.exists() and (tmp_path / live.name).exists()


def test_an_unfinished_folder_that_was_removed_before_its_lock_gets_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer of the same layout looks for leftovers just then."""
    made, opened, locked = os.mkdir, os.open, fcntl.flock
    names: list[str] = []

    def mkdir(name: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        made(name, mode, dir_fd=dir_fd)
        names.append(name)
        if len(names) == 1:
            (tmp_path / name).rmdir()

    def open_then_remove(path: str, *more: Any, **options: Any) -> int:
        file = opened(path, *more, **options)
        if len(names) == 2 and path == names[1]:
            (tmp_path / path).rmdir()
        return file

    def lock(file: int, operation: int) -> None:
        if len(names) == 3:  # the other process holds its lock
            (tmp_path / names[2]).rmdir()
            raise BlockingIOError
        locked(file, operation)

    monkeypatch.setattr(os, "mkdir", mkdir)
    monkeypatch.setattr(os, "open", open_then_remove)
    monkeypatch.setattr(fcntl, "flock", lock)
    with open_output_folder(tmp_path / "out", "oci-layout", os.fspath) as folder:
        assert [path.name for path in tmp_path.iterdir()] == [folder.name] == names[3:]


def swap_unfinished(folder: Path, swap: Callable[[Path], object]) -> Callable[..., None]:
    """Return a writer of layers that calls `swap` with the unfinished layout in `folder` first, as another user can
    rename its entries."""
    alone = threading.Lock()  # layers are written by several threads

    def write_and_swap(*arguments: Any) -> None:
        with alone, contextlib.suppress(StopIteration):
            swap(next(path for path in folder.iterdir() if path.name.startswith(".out.")))
        write_layer_tar(*arguments)

    return write_and_swap


def test_links_in_the_place_of_an_unfinished_layout_are_not_written_through(
    layers: tuple[LayerRecord, ...], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, own = tmp_path / "shared", tmp_path / "own"
    folder.mkdir()
    own.write_text("export PATH")
    moved = folder / "moved"

    def swap(unfinished: Path) -> None:
        if not moved.exists():
            unfinished.rename(moved)
            (unfinished / "blobs/sha256").mkdir(parents=True)
            for name in ("index.json", "oci-layout", "layer-0", "layer-1"):
                (unfinished / name).symlink_to(own)

    monkeypatch.setattr("envbuild.oci.layout.write_layer_tar", swap_unfinished(folder, swap))
    with pytest.raises(PublishError, match="another user replaced"):
        write(layers, folder / "out", store)
    assert own.read_text() == "export PATH"
    assert content(moved) == {}  # nothing of the layout remains


def test_a_folder_in_the_place_of_an_older_layout_is_not_removed(
    layers: tuple[LayerRecord, ...], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "shared"
    out, thesis = folder / "out", folder / "thesis"
    thesis.mkdir(parents=True)
    (thesis / "thesis.tex").write_text("years of work")

    def swap(unfinished: Path) -> None:
        if thesis.exists():
            thesis.rename(out)

    monkeypatch.setattr("envbuild.oci.layout.write_layer_tar", swap_unfinished(folder, swap))
    with pytest.raises(PublishError, match="another user replaced"):
        write(layers[:1], out, store)
    assert [path.read_text() for path in folder.rglob("thesis.tex")] == ["years of work"]


def test_no_other_user_can_enter_an_unfinished_layout(
    layers: tuple[LayerRecord, ...], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = set()
    monkeypatch.setattr(
        "envbuild.oci.layout.write_layer_tar",
        swap_unfinished(tmp_path, lambda unfinished: modes.add(unfinished.stat().st_mode & 0o7777)),
    )
    before = os.umask(0o022)
    try:
        write(layers, tmp_path / "out", store)
    finally:
        os.umask(before)
    assert modes == {0o700}
    assert (tmp_path / "out").stat().st_mode & 0o7777 == 0o755


def test_the_folder_of_another_user_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = os.mkdir

    def mkdir(name: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        made(name, mode, dir_fd=dir_fd)
        os.chown(name, 61001, 61001, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", mkdir)
    with (
        pytest.raises(PublishError, match="another user replaced"),
        open_output_folder(tmp_path / "out", "oci-layout", os.fspath),
    ):
        raise AssertionError("the folder is used")


@pytest.mark.parametrize("with_older", [True, False])
def test_a_folder_that_comes_to_the_place_meanwhile_is_not_removed(tmp_path: Path, with_older: bool) -> None:
    """Who may write the folder above can give any folder of the caller that name, with the mark of a layout in it."""
    shared, precious = tmp_path / "shared", tmp_path / "shared/precious"
    (precious / "blobs").mkdir(parents=True)
    for name in ("oci-layout", "blobs/notes"):
        (precious / name).write_text("mine")
    shared.chmod(0o2777)
    out = shared / "out"
    if with_older:
        out.mkdir()
    with (
        pytest.raises(PublishError, match="another user replaced it while it was written"),
        open_output_folder(out, "oci-layout", os.fspath) as folder,
    ):
        if with_older:
            out.rename(shared / "aside")
        precious.rename(out)
        folder.publish()
    assert (out / "blobs/notes").read_text() == "mine"
    assert {path.name for path in shared.iterdir()} == {"out", *(["aside"] if with_older else [])}


def test_what_is_at_the_place_is_checked_by_a_descriptor(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes").touch()

    def check(at: Path) -> None:
        out.rename(tmp_path / "aside")
        out.mkdir()
        assert [path.name for path in at.iterdir()] == ["notes"]
        raise PublishError("it has notes")

    with pytest.raises(PublishError, match="it has notes"), open_output_folder(out, "oci-layout", check):
        raise AssertionError("the folder is used")
    assert (tmp_path / "aside/notes").exists()


def test_an_older_folder_that_others_can_write_is_not_replaced(tmp_path: Path) -> None:
    """They could move a folder of the caller into it, where only the caller can remove what is in it."""
    out = tmp_path / "out"
    out.mkdir()
    with open_output_folder(out, "oci-layout", os.fspath) as folder:  # an empty one may be removed by any user
        (folder.handle / "oci-layout").touch()
        folder.publish()
    for spoil in (lambda: out.chmod(0o777), lambda: os.chown(out, 4711, -1)):
        out.chmod(0o755)
        spoil()
        with (
            pytest.raises(PublishError, match="so it is not replaced"),
            open_output_folder(out, "oci-layout", os.fspath),
        ):
            raise AssertionError("the folder is used")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
