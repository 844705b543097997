"""Folders are removed, however deep they are."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.core import folder_removal
from envbuild.core.folder_removal import discard_folder, remove_folder
from envbuild.core.store.store import Store
from envbuild.core.store.usage import size_of
from envbuild.core.userns.removal import remove_tree

pytestmark = pytest.mark.unit
LEVELS = 1050


def deep(top: Path) -> Path:
    """Make a folder that is deeper than Python's stack and longer than a path may be, with files."""
    top.mkdir()
    back = os.open(".", os.O_RDONLY)
    try:
        os.chdir(top)
        for _ in range(LEVELS):
            Path("file").touch()
            Path("folder").mkdir()
            os.chdir("folder")
    finally:
        os.fchdir(back)
        os.close(back)
    (top / "link").symlink_to("/")
    os.mkfifo(os.fsencode(top) + b"/\xff")
    return top


@pytest.mark.slow_unit
@pytest.mark.parametrize("remove", [remove_folder, remove_tree])
def test_a_deep_folder_is_removed(tmp_path: Path, remove: object) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").touch()
    top = deep(tmp_path / "top")
    (top / "out").symlink_to("../kept")
    remove(top)  # type: ignore[operator]
    assert [path.name for path in tmp_path.iterdir()] == ["kept"] and (tmp_path / "kept/file").exists()


@pytest.mark.slow_unit
def test_the_folder_of_a_process_is_removed(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    with store.workdir() as work:
        deep(work / "upper")
    assert not [*(store.root / "tmp").iterdir()]


@pytest.mark.slow_unit
def test_the_size_of_a_deep_folder_passes_over_what_cannot_be_read(tmp_path: Path) -> None:
    top = deep(tmp_path / "top")
    try:
        assert size_of(top) > 0
    finally:
        discard_folder(top)


def test_a_missing_folder_and_a_file_are_left_alone(tmp_path: Path) -> None:
    discard_folder(tmp_path / "none")
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(".")
    discard_folder(tmp_path / "link")
    discard_folder(tmp_path / "file")
    assert {path.name for path in tmp_path.iterdir()} == {"file", "link"}


class Exchange:
    """Another user, who exchanges all folders in `shared` for links to `own`, at the system call `moment` and later."""

    def __init__(self, shared: Path, own: Path, moment: int) -> None:
        self.shared, self.own, self.left, self.active = shared, own, moment, False

    def before(self, call: Callable[..., object]) -> Callable[..., object]:
        def exchanged(*given: object, **options: object) -> object:
            if not self.active:
                self.active = True
                self.left -= 1
                if self.left < 0:
                    self.exchange()
                self.active = False
            return call(*given, **options)

        return exchanged

    def exchange(self) -> None:
        found = [self.shared]
        for folder in found:
            found += [path for path in folder.iterdir() if is_folder(path)]
        for path in found[:0:-1]:  # the deepest first
            if path.name != "top":
                path.rename(self.shared.with_name(f"taken-{os.urandom(4).hex()}"))
                path.symlink_to(self.own)


def is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


@pytest.mark.slow_unit
def test_a_link_in_the_place_of_a_folder_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few files may be open, so that a deep folder has to be removed in parts."""
    own, depth = tmp_path / "own", 24
    (own / "f").mkdir(parents=True)
    for path in (own / "file", own / "f/file"):
        path.touch()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len([*Path("/proc/self/fd").iterdir()]) + 14, limits[1]))
    try:
        for moment in range(1, 12 * depth, 10):
            top = tmp_path / f"shared-{moment}/top"
            inner = top / Path(*("f" for _ in range(depth)))
            inner.mkdir(parents=True)
            (inner / "file").touch()
            other = Exchange(top.parent, own, moment)
            with monkeypatch.context() as patch:
                for name in ("open", "scandir", "unlink", "rename", "rmdir"):
                    patch.setattr(os, name, other.before(getattr(os, name)))
                discard_folder(top)
            assert (own / "file").exists() and (own / "f/file").exists(), moment
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert other.left > 0 and not top.exists()  # the last one came too late


def test_what_cannot_be_removed_is_reported_with_its_reason(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a file that cannot be removed")
    (tmp_path / "top/a").mkdir(parents=True)
    (tmp_path / "top/b").touch()
    subprocess.run(["mount", "--bind", tmp_path / "top/a", tmp_path / "top/a"], check=True)
    try:
        with pytest.raises(OSError, match="busy") as caught:
            remove_folder(tmp_path / "top")
        assert caught.value.filename == str(tmp_path / "top") and not (tmp_path / "top/b").exists()
    finally:
        subprocess.run(["umount", tmp_path / "top/a"], check=True)
    remove_folder(tmp_path / "top")
    assert not (tmp_path / "top").exists()


def test_there_is_no_other_removal_of_folders() -> None:
    root = Path(folder_removal.__file__).parents[1]
    found = [path.name for path in root.rglob("*.py") if "rmtree(" in path.read_text()]
    assert found == []
