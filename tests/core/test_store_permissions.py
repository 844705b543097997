"""A store that a group shares: its entries have the mode of their folder, with any umask."""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envbuild.core.store import permissions
from envbuild.core.store.store import Store
from envbuild.core.store.store_folders import CLOSED
from envbuild.oci.output_folder import open_output_folder

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def narrow() -> Iterator[None]:
    """Set an umask that excludes all other users."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o3770)
    return folder


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.parametrize(
    ("folder", "found"),
    [(0o2770, 0o2770), (0o3775, 0o3775), (0o775, 0), (0o1775, 0), (0o2755, 0), (0o1777, 0), (0o777, 0), (0o702, 0)],
)
def test_a_group_shares_a_setgid_folder_that_it_may_write_and_others_may_not(
    folder: int, found: int, tmp_path: Path
) -> None:
    tmp_path.chmod(folder)
    assert permissions.is_shared(tmp_path) == found
    tmp_path.chmod(0o700)


def test_folders_have_the_mode_of_a_shared_parent(shared: Path, tmp_path: Path) -> None:
    permissions.make_shared_folder(shared / "new")
    permissions.make_shared_folder(shared / "new" / "deep")
    permissions.make_shared_folder(tmp_path / "own")
    assert [mode(path) for path in (shared / "new", shared / "new/deep", tmp_path / "own")] == [0o2770, 0o2770, 0o700]
    (shared / "new").chmod(0o700)
    permissions.make_shared_folder(shared / "new")  # exists: its owner's choice remains
    assert mode(shared / "new") == 0o700


def test_the_group_may_lock_and_touch_a_file_of_a_shared_folder(shared: Path, tmp_path: Path) -> None:
    for folder, found in ((shared, 0o660), (tmp_path, 0o600)):
        with permissions.open_lock_file(folder / "lock"):
            assert mode(folder / "lock") == found
        (tmp_path / "made").write_text("x")
        permissions.move_into_store(tmp_path / "made", folder / "moved")
        assert mode(folder / "moved") == found
        assert not (tmp_path / "made").exists()


def test_a_lock_file_of_another_user_can_be_locked_and_is_left_as_it_is(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shared / "lock").touch()
    (shared / "lock").chmod(0o444)
    opened, real = [], os.open

    def refuse_writing(path: Path, flags: int, *more: int) -> int:
        opened.append(flags & os.O_ACCMODE)
        if flags & os.O_ACCMODE == os.O_RDWR and not flags & os.O_EXCL:
            raise PermissionError
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", refuse_writing)
    with permissions.open_lock_file(shared / "lock"):
        assert opened == [os.O_RDWR, os.O_RDWR, os.O_RDONLY]
    assert mode(shared / "lock") == 0o444


def test_what_only_its_owner_may_change_is_used_as_it_is(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = shared / "file"
    file.touch()
    os.utime(file, (0, 0))
    permissions.record_use(file)
    assert file.stat().st_mtime > 0

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(os, "fchmod", refuse)
    permissions.record_use(file)
    permissions.share_file(file)


def test_layers_and_work_folders_are_closed_to_others(tmp_path: Path) -> None:
    os.umask(0o022)
    for own in (0o755, 0o3775, 0o3770, 0o700):
        root = tmp_path / f"{own:o}"
        root.mkdir()
        root.chmod(own)
        lines: list[str] = []
        store = Store.open(root, lines.append)
        with store.workdir() as work:
            assert mode(work) == 0o700  # even in a setgid folder: entries of a tree get their builder's group
        assert {mode(store.own / name) for name in CLOSED} == {0o700} and lines == []
        assert mode(store.own) == (0o700 if own & 0o020 else own)
        for name in CLOSED:
            (store.own / name).chmod(0o777)
        Store.open(root, lines.append)
        assert {mode(store.own / name) for name in CLOSED} == {0o700} and len(lines) == 1
        Store.open(root, lines.append)
        assert len(lines) == 1


def test_folders_that_members_of_an_older_store_worked_in_are_closed(shared: Path) -> None:
    """They hold trees, in which setuid programs may be; nothing uses them any more."""
    Store.open(shared)
    for name in CLOSED:
        (shared / name).mkdir()
        (shared / name).chmod(0o2775)
    lines: list[str] = []
    Store.open(shared, lines.append)
    assert [mode(shared / name) & 0o777 for name in CLOSED] == [0o700] * len(CLOSED) and len(lines) == 1
    Store.open(shared, lines.append)
    assert len(lines) == 1


def test_each_user_of_a_shared_store_has_a_folder_in_it(shared: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    assert permissions.make_own_place(alone) == alone
    own = permissions.make_own_place(shared)
    assert own == shared / f"user-{os.geteuid()}" == permissions.own_place(shared)
    assert mode(own) == 0o700
    own.rename(shared / "user-77")  # as a user namespace shows it: the name is not the user's number
    assert permissions.make_own_place(shared) == shared / "user-77" == permissions.own_place(shared)


def test_a_folder_of_this_users_name_that_is_another_ones_is_not_used(shared: Path) -> None:
    (shared / "elsewhere").mkdir()
    (shared / f"user-{os.geteuid()}").symlink_to(shared / "elsewhere")
    own = permissions.make_own_place(shared)
    assert own.parent == shared and not own.is_symlink() and own.is_dir()
    assert permissions.make_own_place(shared) == own


@pytest.mark.parametrize("other", [0o2775, 0o750, 0o701])
def test_a_folder_of_this_user_that_others_may_enter_is_not_used(other: int, shared: Path) -> None:
    """Another member may take the usual name, and move a folder to a name of this user in which both may write."""
    named = shared / f"user-{os.geteuid()}"
    named.symlink_to(shared)  # as one that belongs to another member
    moved = shared / f"{named.name}-00000000"
    moved.mkdir()
    moved.chmod(other)
    own = permissions.make_own_place(shared)
    assert own not in (named, moved) and mode(own) == 0o700
    assert permissions.own_place(shared) == own


def test_links_and_files_with_two_names_are_not_shared(shared: Path, tmp_path: Path) -> None:
    """They may be another user's files, which a member of the group put there."""
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    (shared / "link").symlink_to(secret)
    (shared / "name").hardlink_to(secret)
    os.mkfifo(shared / "pipe", 0o600)
    for name in ("link", "name", "pipe"):
        permissions.share_file(shared / name)
        permissions.record_use(shared / name)
    assert mode(secret) == 0o600 == mode(shared / "pipe")
    with pytest.raises(OSError, match="symbolic links"):
        permissions.open_lock_file(shared / "link")


def test_only_a_file_that_a_process_of_a_user_namespace_left_is_shared(shared: Path) -> None:
    """There the group has no number. Another member can move a private file of this user to the name of a pack."""
    private, pack = shared / "key", shared / "pack"
    private.write_text("secret")
    pack.touch()
    pack.chmod(0o644)
    with pack.open("rb") as file:
        permissions.share_open_file(file.fileno(), permissions.NO_GROUP)
    assert mode(pack) == 0o1644
    for path in (private, pack):
        permissions.share_file(path)
    assert (mode(private), mode(pack)) == (0o600, 0o664)


@pytest.mark.slow_unit
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")
def test_many_users_open_a_new_shared_store_at_the_same_moment() -> None:
    """With an umask that excludes the group, a folder may at no moment be closed to the others."""
    folder, group = Path(tempfile.mkdtemp(prefix="envbuild-test-")), 50_000
    folder.chmod(0o711)
    try:
        for number in range(30):
            root = folder / str(number)
            root.mkdir()
            shutil.chown(root, group=group)
            root.chmod(0o3775)
            Store.open(root)  # as its owner

            def use(root: Path = root) -> None:
                with Store.open(root).lock("shared", shared=True):
                    pass

            assert run_as_users(range(50_001, 50_006), group, use) == [0] * 5
            assert not list(root.rglob(".*"))
    finally:
        shutil.rmtree(folder)


def run_as_users(users: range, group: int, function: Callable[[], None]) -> list[int]:
    """Return the exit codes of `function` in a process of each user, all started at the same moment."""
    read, write = os.pipe()
    children = []
    for user in users:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(write)
                os.setgroups([])
                os.setgid(group)
                os.setuid(user)
                os.umask(0o077)
                os.read(read, 1)  # until all are there
                function()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    os.close(read)
    os.close(write)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def test_a_finished_file_has_what_the_umask_leaves(shared: Path, tmp_path: Path) -> None:
    for umask, found in ((0o022, 0o644), (0o027, 0o640), (0o077, 0o600), (0o002, 0o644)):
        os.umask(umask)
        assert (permissions.finished_mode(tmp_path), permissions.finished_mode(shared)) == (found, 0o644)


def test_a_default_list_above_the_store_decides_no_mode(tmp_path: Path) -> None:
    """The kernel ignores the umask below it: files of a base image would be writable by more users."""
    folder = tmp_path / "project"
    folder.mkdir()
    entries = ((0x01, 7, -1), (0x02, 7, 61001), (0x04, 5, -1), (0x10, 7, -1), (0x20, 7, -1))  # acl(5)
    text = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(folder, "system.posix_acl_default", text)
    except OSError as error:
        pytest.skip(f"no access control lists in the folder of the tests: {error.strerror}")
    os.umask(0o022)
    with Store.open(folder / "store").workdir() as work:
        (work / "upper").mkdir()
        (work / "upper/passwd").touch()
        assert (work / "upper/passwd").stat().st_mode & 0o777 == 0o644
        assert (work / "upper").stat().st_mode & 0o777 == 0o755
    with open_output_folder(folder / "out", "oci-layout", os.fspath) as output:
        (output.handle / "file").touch()
        assert (output.handle / "file").stat().st_mode & 0o777 == 0o644
