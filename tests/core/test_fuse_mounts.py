"""The user of a file system: the form of the list is that of proc_pid_mountinfo(5)."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.core import fuse_mounts, user_numbers
from envbuild.core.errors import EngineError
from envbuild.core.file_status import file_status
from envbuild.core.judged_links import ForeignLinkError, check_links
from envbuild.core.ownership import find_any_intrusions, find_intrusion, find_renamers, own_users
from envbuild.core.store.members import check_members
from envbuild.core.store.permissions import make_own_place, own_place
from envbuild.core.store.place import check_place
from envbuild.core.userns import file_calls
from tests.support import fuse_server

pytestmark = pytest.mark.unit
STRANGER = 54_321


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that lets the file system of tmp_path be of a type, with options."""
    device, mounts, types = tmp_path.stat().st_dev, tmp_path / "mountinfo", file_calls.file_system
    with mounts.open("w") as file:
        number = Path(f"/proc/self/fdinfo/{file.fileno()}").read_text().split("mnt_id:")[1].split()[0]
    kinds = ["ext4"]

    def mount(kind: str) -> None:
        kinds.append(kind)
        mounts.write_text(
            f"{number}1 1 0:4242 / /other rw shared:1 - fuse.other other rw,user_id=1,group_id=1\n"
            f"35 22 0:4243 / /m\x0c{number}\x1f1\u2028 rw - fuse.evil evil rw,user_id=7,group_id=7\n"
            f"{number} 22 0:4244 / /mnt rw,nosuid,nodev,relatime shared:2 master:1 - {kind}\n"
        )

    def file_system(file: int) -> int:
        is_fuse = os.fstat(file).st_dev == device and kinds[-1].startswith(("fuse", "virtiofs"))
        return file_calls.FUSE if is_fuse else types(file)

    monkeypatch.setattr(fuse_mounts, "MOUNTS", mounts)
    monkeypatch.setattr(file_calls, "file_system", file_system)
    return mount


@pytest.mark.parametrize(
    ("kind", "user"),
    [
        ("ext4 /dev/vda1 rw", None),
        (f"fuse.squashfuse squashfuse rw,user_id={STRANGER},group_id={STRANGER},allow_other", STRANGER),
        ("fuse.sshfs host:/ rw,user_id=1000,group_id=1000", 1000),
        ("fuse backup\x0c rw,user_id=1000,group_id=1000", 1000),  # the name is the user's: blanks alone are escaped
        ("fuse.a user_id=0 rw,group_id=1000", user_numbers.UNKNOWN),
        ("virtiofs home rw", None),
        ("fuseblk /dev/sdb1 rw,user_id=0,group_id=0,allow_other,blksize=4096", 0),
    ],
)
def test_the_user_of_a_file_system(kind: str, user: int | None, mounted: Callable[[str], None], tmp_path: Path) -> None:
    mounted(kind)
    found = file_status(tmp_path)
    assert found.mounter == user
    assert found.owner == (user or os.geteuid())


def test_root_of_the_machine_is_root_in_every_user_namespace(
    mounted: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uid_map").write_text("0 1000 1\n1 100000 65536\n")
    monkeypatch.setattr(user_numbers, "UID_MAP", tmp_path / "uid_map")
    for stated, number in ((0, 0), (100_001, 2), (70_000, user_numbers.UNKNOWN)):
        mounted(f"fuse.glusterfs server:/home rw,user_id={stated},group_id=0")
        assert file_status(tmp_path).mounter == number


@pytest.mark.parametrize(
    ("uid_map", "number"),
    [
        ("0 1000 1\n1 100000 65536\n", user_numbers.UNKNOWN),  # root here, or the user 1000 of this container
        ("0 1000 1\n", 0),
        ("1000 1000 1\n", 1000),
        ("0 100000 65536\n", 1000),
    ],
)
def test_a_number_that_two_users_have_is_not_that_of_root(
    uid_map: str, number: int, mounted: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel states who mounted a file system by a number of the namespace in which that was."""
    (tmp_path / "uid_map").write_text(uid_map)
    monkeypatch.setattr(user_numbers, "UID_MAP", tmp_path / "uid_map")
    mounted("fuse.sshfs host:/ rw,user_id=1000,group_id=1000")
    assert file_status(tmp_path).mounter == number


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/dev/fuse").exists(), reason="needs /dev/fuse, as root")
@pytest.mark.parametrize(
    ("way", "mounter"),
    [
        ("mounted", f"the user {fuse_server.USER}"),
        ("unmount", "an unknown user"),
        ("silent", f"the user {fuse_server.USER}"),
    ],
)
def test_a_file_system_that_is_unmounted_while_it_answers_is_not_believed(
    way: str, mounter: str, tmp_path: Path
) -> None:
    """A program of another user states that its folder is the caller's, and is not in the list of mounts when that
    arrives; or it answers nothing now, and later that the folder is the caller's."""
    command = ["unshare", "-m", sys.executable, "-m", fuse_server.__name__, tmp_path, way]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert found == f"is in a FUSE file system that {mounter} mounted\n"


def test_a_file_about_which_nothing_is_known_is_not_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process may open no further file, because a way that another user made has many folders."""

    def fail(path: str, flags: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(OSError, match="Too many open files"):
        find_intrusion(str(tmp_path), own_users())
    with pytest.raises(OSError, match="Too many open files"):
        list(find_renamers(str(tmp_path), own_users()))


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
