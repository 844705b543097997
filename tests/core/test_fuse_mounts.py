"""The user of a file system: the form of the list is that of proc_pid_mountinfo(5)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envbuild.core import fuse_mounts
from envbuild.core.fuse_mounts import fuse_user
from envbuild.core.ownership import find_any_intrusions, find_intrusion, own_users

pytestmark = pytest.mark.unit
STRANGER = 54_321


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Return a function that lets the file system of tmp_path be of a type, with options."""
    device, mounts = tmp_path.stat().st_dev, tmp_path / "mountinfo"

    def mount(kind: str) -> None:
        place = f"{os.major(device)}:{os.minor(device)}"
        mounts.write_text(
            "22 1 0:4242 / /other rw shared:1 - fuse.other other rw,user_id=1,group_id=1\n"
            f"35 22 0:4243 / /m\x0c1\x1f1\x1f{place}\u2028 rw - fuse.evil evil rw,user_id=7,group_id=7\n"
            f"36 22 {place} / /mnt rw,nosuid,nodev,relatime shared:2 master:1 - {kind}\n"
        )
        fuse_user.cache_clear()

    monkeypatch.setattr(fuse_mounts, "MOUNTS", mounts)
    yield mount
    fuse_user.cache_clear()


@pytest.mark.parametrize(
    ("kind", "user"),
    [
        ("ext4 /dev/vda1 rw", None),
        (f"fuse.squashfuse squashfuse rw,user_id={STRANGER},group_id={STRANGER},allow_other", STRANGER),
        ("fuse.sshfs host:/ rw,user_id=1000,group_id=1000", 1000),
        ("fuse backup\x0c rw,user_id=1000,group_id=1000", 1000),  # the name is the user's: blanks alone are escaped
        ("fuse.a user_id=0 rw,group_id=1000", 65534),
        ("fusectl fusectl rw", None),
        ("fuseblk /dev/sdb1 rw,user_id=0,group_id=0,allow_other,blksize=4096", 0),
    ],
)
def test_the_user_of_a_file_system(kind: str, user: int | None, mounted: Callable[[str], None], tmp_path: Path) -> None:
    mounted(kind)
    assert fuse_user(tmp_path.stat().st_dev) == user


def test_owners_in_the_file_system_of_another_user_are_not_believed(
    mounted: Callable[[str], None], tmp_path: Path
) -> None:
    """It states that all files are root's."""
    path = tmp_path / "site.yaml"
    path.touch(0o644)
    for user in (STRANGER, os.geteuid()):
        mounted(f"fuse.evil evil rw,user_id={user},group_id={user},allow_other")
        found = find_intrusion(str(path), own_users())
        assert bool(found) == (user == STRANGER) == bool(list(find_any_intrusions(path)))
        if found:
            assert found.reason == f"is in a FUSE file system that the user {STRANGER} mounted"
