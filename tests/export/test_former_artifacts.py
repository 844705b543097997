"""Files of an image that newer ones replaced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envbuild.export.former_artifacts import remove_former

pytestmark = pytest.mark.unit
LOCK, OTHER = "app-0123456789ab", "app-0123456789ac"


def put(folder: Path, stem: str, at: int, *endings: str) -> Path:
    for ending in endings or (".sqsh",):
        (folder / f"{stem}{ending}").write_text(stem)
        os.utime(folder / f"{stem}{ending}", (at, at))
    return folder / f"{stem}{endings[0] if endings else '.sqsh'}"


def test_of_the_files_of_one_lock_the_current_and_the_one_before_remain(tmp_path: Path) -> None:
    for number in range(4):
        put(tmp_path, f"{LOCK}-0000000{number}", 100 + number, ".sqsh", ".provenance.json", ".cdx.json")
    put(tmp_path, f"{OTHER}-00000000", 1)
    put(tmp_path, f"my-{LOCK}-00000000", 1)
    put(tmp_path, LOCK, 1, ".sqsh", ".evidence.json")
    (tmp_path / f"{LOCK}-0000000a.sqsh").symlink_to("elsewhere")
    (tmp_path / "app.sqsh").symlink_to(f"{LOCK}-00000001.sqsh")
    before = {path.name for path in tmp_path.iterdir()}
    removed = remove_former(tmp_path / f"{LOCK}-00000001.sqsh")
    gone = {f"{LOCK}-0000000{number}{end}" for number in (0, 2) for end in (".sqsh", ".provenance.json", ".cdx.json")}
    assert set(removed) == gone and {path.name for path in tmp_path.iterdir()} == before - gone
    assert remove_former(tmp_path / f"{LOCK}-00000001.sqsh") == []


def test_a_file_of_another_name_has_no_former_ones(tmp_path: Path) -> None:
    """Such as those of third-party images."""
    put(tmp_path, "app-image", 1)
    put(tmp_path, f"{LOCK}-00000001", 1)
    put(tmp_path, f"{LOCK}-00000002", 2)
    assert remove_former(put(tmp_path, LOCK, 3)) == remove_former(tmp_path / "app-image.sqsh") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner of a file")
def test_files_of_another_user_remain(tmp_path: Path) -> None:
    for number in range(4):
        os.chown(put(tmp_path, f"{LOCK}-0000000{number}", number), 12345, -1)
    assert remove_former(put(tmp_path, f"{LOCK}-00000009", 9)) == []
