"""The user of a file system: the form of the list is that of proc_pid_mountinfo(5)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envbuild.core import fuse_mounts
from envbuild.core.errors import EngineError
from envbuild.core.fuse_mounts import fuse_user
from envbuild.core.judged_links import ForeignLinkError, check_links
from envbuild.core.ownership import find_any_intrusions, find_intrusion, own_users
from envbuild.core.store.members import check_members
from envbuild.core.store.permissions import make_own_place, own_place
from envbuild.core.store.place import check_place

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


def test_a_store_in_the_file_system_of_another_user_is_that_users(
    mounted: Callable[[str], None], tmp_path: Path
) -> None:
    """It states that its folders are the caller's, with mode 0700: its apt would run commands as the caller."""
    root = tmp_path / "store"
    root.mkdir(mode=0o700)
    mounted(f"fuse.evil evil rw,user_id={os.geteuid()},group_id=0")
    check_place(root)
    mounted(f"fuse.evil evil rw,user_id={STRANGER},group_id={STRANGER},allow_other")
    with pytest.raises(EngineError, match=f"the store {root} belongs to the user {STRANGER}"):
        check_place(root)


def test_a_folder_of_a_store_in_the_file_system_of_another_user(mounted: Callable[[str], None], tmp_path: Path) -> None:
    (tmp_path / "packs").mkdir()
    mounted(f"fuse.evil evil rw,user_id={STRANGER},group_id={STRANGER},allow_other")
    with pytest.raises(EngineError, match=f"{tmp_path / 'packs'} belongs to the user {STRANGER}"):
        check_members(tmp_path, ("packs",), ())


def test_the_place_of_a_member_is_not_what_another_one_mounted_there(
    mounted: Callable[[str], None], tmp_path: Path
) -> None:
    tmp_path.chmod(0o3770)
    named = tmp_path / f"user-{os.geteuid()}"
    named.mkdir(mode=0o700)
    assert own_place(tmp_path) == named
    mounted(f"fuse.evil evil rw,user_id={STRANGER},group_id={STRANGER},allow_other")
    assert own_place(tmp_path) != named
    mounted("ext4 /dev/vda1 rw")
    assert make_own_place(tmp_path) == named


def test_a_link_in_the_file_system_of_another_user_is_that_users(
    mounted: Callable[[str], None], tmp_path: Path
) -> None:
    """Its owner is root there, and it leads to a private layout of the caller."""
    link = tmp_path / "layout"
    link.symlink_to("/proc")  # another file system
    mounted("ext4 /dev/vda1 rw")
    check_links(link, own_users())
    mounted(f"fuse.evil evil rw,user_id={STRANGER},group_id={STRANGER},allow_other")
    with pytest.raises(ForeignLinkError):
        check_links(link, own_users())
