"""Files that the steps of a stage wrote, and those that only its build sees: with the real programs of this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from envbuild.build.plan import written_files as w


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("BEFORE", "AFTER", "WRITTEN", "FOUND", "GONE", "INPUTS"):
        monkeypatch.setattr(w, name, str(tmp_path / name))
    (tmp_path / "INPUTS").mkdir()
    return tmp_path


def run(command: str) -> int:
    return subprocess.run(["/bin/sh", "-c", command], check=False).returncode


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def copy_again(folder: Path) -> None:
    """Copy a folder as a storage driver without layers does for each step: new inodes, new times of status."""
    subprocess.run(["cp", "-a", str(folder), f"{folder}.new"], check=True)
    subprocess.run(["rm", "-r", str(folder)], check=True)
    Path(f"{folder}.new").rename(folder)


def test_files_that_no_step_wrote_are_removed_also_where_all_are_copied_between_steps(place: Path) -> None:
    folder = place / "it's a $HOME"
    (folder / "include/deep").mkdir(parents=True)
    for name in ("include/a b", "include/deep/li\nne", "same", "kept", "gone"):
        (folder / name).write_text(name)
    at = f"cd '{str(folder).replace(chr(39), chr(39) + chr(92) + chr(39) * 2)}' && "
    steps = ("cp -p same ../x; cp -p ../x same; ln -s same link", "echo > 'new\nline'; rm gone; ln kept hard")
    for step in steps:
        copy_again(folder)
        assert run(w.note_written(at + step, [str(folder)])) == 0
    copy_again(folder)
    assert run(w.remove_others([str(folder)])) == 0
    assert files(folder) == {"same", "link", "new\nline", "kept", "hard"}


def test_a_failing_step_fails(place: Path) -> None:
    (place / "folder").mkdir()
    assert run(w.note_written("true; exit 7", [str(place / "folder")])) == 7
    assert run(w.note_written("false", [str(place / "folder")])) == 1


def test_steps_that_wrote_nothing_leave_nothing(place: Path) -> None:
    (place / "folder").mkdir()
    (place / "folder/file").touch()
    assert run(w.note_written("true", [str(place / "folder")])) == 0
    assert run(w.remove_others([str(place / "folder")])) == 0
    assert files(place / "folder") == set()


def test_what_steps_removed_is_removed_from_a_copy_too_and_nothing_else(place: Path) -> None:
    folder, copy, absent = place / "it's a $HOME", place / "copy", place / "absent"
    (folder / "turned/in").mkdir(parents=True)
    for name in ("turned/in/a", "li\nne", "-rf", "same", "file"):
        (folder / name).write_text(name)
    assert run(w.note_found([str(folder), str(absent)])) == 0
    subprocess.run(["cp", "-a", str(folder), str(copy)], check=True)
    steps = "rm -- -rf 'li\nne' file; rm -r turned; ln -s same turned; mkdir file; echo more >> same; touch new"
    subprocess.run(["/bin/sh", "-c", steps], cwd=folder, check=True)
    absent.mkdir()
    copy_again(folder)
    assert run(w.note_gone([str(folder), str(absent)])) == 0
    subprocess.run(["cp", "-a", str(folder), str(place / "after")], check=True)
    subprocess.run(["rm", "-r", str(folder)], check=True)
    copy.rename(folder)
    (folder / "other").touch()  # a stage may have more than the steps saw
    assert run(w.remove_gone()) == 0
    assert files(folder) == {"same", "other"}
    assert absent.is_dir()


def test_a_failure_to_list_or_to_remove_is_seen(place: Path) -> None:
    assert run(w.remove_gone()) != 0
    (place / "INPUTS").rmdir()
    assert run(w.note_gone([str(place)])) != 0
