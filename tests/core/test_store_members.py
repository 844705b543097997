"""Other users beside a store, as the kernel sees them: members of the group that shares it, and users outside of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from unittest.mock import Mock

import pytest

from envbuild.core import user_numbers
from envbuild.core.access_lists import has_access_lists, remove_access_lists
from envbuild.core.console import SilentReporter
from envbuild.core.errors import EngineError
from envbuild.core.store import former_members, store_folders
from envbuild.core.store.access import check_readable
from envbuild.core.store.gc import collect
from envbuild.core.store.joined import has_joined, join_stores
from envbuild.core.store.permissions import move_into_store, own_place
from envbuild.core.store.place import check_place, find_strange, is_root_of, may_change
from envbuild.core.store.records import is_unchanged
from envbuild.core.store.store import Store
from envbuild.core.store.store_folders import check_former_group, prepare_store
from envbuild.core.userns import libc
from envbuild.export.progress_list import list_exports
from tests.support.access_lists import USER, set_list
from tests.support.as_user import run_as
from tests.support.store_members import GROUP, ONE, OUTSIDE, TWO, as_member

pytestmark = [pytest.mark.unit, pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")]


def test_a_link_of_another_user_is_not_on_the_way_to_a_store(folder: Path) -> None:
    """Its owner could turn it while a command runs."""
    for uid, name in ((OUTSIDE, "theirs"), (ONE, "own")):
        (folder / name).symlink_to(folder / "real")
        os.chown(folder / name, uid, -1, follow_symlinks=False)
    (folder / "real").mkdir()
    os.chown(folder / "real", ONE, ONE)
    assert as_member(ONE, lambda: str(Store.open(folder / "own/store").root)) == str(folder / "own/store")

    def refused() -> str:
        try:
            Store.open(folder / "theirs/store")
        except EngineError as error:
            return str(error)
        return ""

    shutil.rmtree(folder / "real/store")
    assert str(as_member(ONE, refused)).startswith(f"a link of another user is on the way to the store {folder}")
    assert not (folder / "real/store").exists(), "nothing is made through that link"


def test_a_store_that_any_user_can_have_made_is_used_by_those_who_joined_it(
    shared: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name may be the one that this user would give to a store in /scratch."""

    def refusal() -> str:
        try:
            Store.open(shared)
        except EngineError as error:
            return f"{error.message}: {error.hint}"
        return ""

    os.chown(shared, OUTSIDE, GROUP)  # a member as well, of the same first group
    shared.chmod(0o3775)
    for name in ("blobs", "blobs/sha256", "packs", "units", "images", "locks", "artifacts"):
        if (shared / name).exists():
            os.chown(shared / name, OUTSIDE, GROUP)
    config = folder / "config"
    config.mkdir()
    os.chown(config, TWO, TWO)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config))
    assert as_member(TWO, refusal) == ""
    shared.parent.chmod(0o1770)
    os.chown(shared.parent, 0, GROUP)
    assert as_member(TWO, refusal) != ""  # another member of the group can have made it
    os.chown(shared.parent, OUTSIDE, OUTSIDE)
    shared.parent.chmod(0o755)
    assert [path.name for path in as_member(TWO, lambda: [*find_strange(shared)])] == [shared.parent.name]  # in /tmp
    os.chown(shared.parent, 0, 0)
    set_list(shared.parent, (USER, 7, ONE), own=5)
    shared.parent.chmod(0o775)
    assert as_member(TWO, refusal) != ""  # another user, by an access list
    remove_access_lists(shared.parent)
    shared.parent.chmod(0o1777)
    assert as_member(TWO, refusal) != ""  # what it has of this member, another one can have put there
    text = str(as_member(TWO, refusal))
    assert "in a folder where other users can make one of any name" in text
    assert text.endswith(f"ENVBUILD_STORE={shared} envbuild store join")
    with pytest.raises(AssertionError, match="in a folder where other users"):
        as_member(TWO, lambda: check_former_group(shared))  # of a command that reads it
    as_member(TWO, lambda: join_stores(find_strange(shared)))
    as_member(TWO, lambda: check_former_group(shared))
    assert as_member(TWO, refusal) == ""
    os.chown(shared, ONE, GROUP)  # another owner, at the same path
    assert as_member(TWO, refusal) != ""
    os.chown(shared, OUTSIDE, GROUP)
    assert as_member(TWO, refusal) == ""
    (config / "link").symlink_to(shared)
    os.chown(config / "link", TWO, TWO, follow_symlinks=False)
    assert as_member(TWO, lambda: shared in find_strange(config / "link"))  # as a ~/.cache that leads to /scratch
    shared.rename(moved := shared.with_name("moved"))
    shared = moved  # to the name that the site of this user has for a store
    assert as_member(TWO, refusal) != ""


def test_a_store_is_not_made_below_a_folder_that_any_user_can_have_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As /scratch/$USER, which is not there yet: its owner exchanges what is in it while a command runs."""

    def refusal(place: Path) -> str:
        try:
            check_place(place, is_new=True)
        except EngineError as error:
            return error.message
        return ""

    theirs, config = folder / "scratch/me", folder / "config"
    for path, owner, mode in ((folder / "scratch", 0, 0o1777), (theirs, OUTSIDE, 0o777), (config, TWO, 0o700)):
        path.mkdir()
        os.chown(path, owner, owner)
        path.chmod(mode)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config))
    for user in (TWO, 0):
        assert f"the folder {theirs}, in which" in str(as_member(user, lambda: refusal(theirs / "envbuild")))
    (theirs / "group").mkdir()
    os.chown(theirs / "group", ONE, GROUP)
    (theirs / "group").chmod(0o3775)
    text = str(as_member(TWO, lambda: refusal(theirs / "group")))  # all whom a join trusts are named
    assert all(f"belongs to the user {user}" in text for user in (ONE, OUTSIDE))
    with pytest.raises(EngineError, match="where other users can make one of any name"):
        Store.open(theirs / "new/envbuild")
    assert not (theirs / "new").exists()
    with pytest.raises(FileNotFoundError):  # its owner took it away for this moment
        check_place(theirs / "away/envbuild")
    as_member(TWO, lambda: join_stores(find_strange(theirs / "envbuild")))
    assert as_member(TWO, lambda: refusal(theirs / "envbuild")) == ""
    (config / "envbuild/stores").unlink()
    (theirs / "mine").mkdir()
    os.chown(theirs / "mine", TWO, TWO)
    assert as_member(TWO, lambda: refusal(theirs / "mine")) != ""  # as the cache of facts makes it
    for owner in (OUTSIDE, TWO):
        (theirs / "mine/envbuild-store").touch()
        os.chown(theirs / "mine/envbuild-store", owner, owner)
        assert (as_member(TWO, lambda: refusal(theirs / "mine")) == "") == (
            owner == TWO
        )  # a store already, of this user
    (config / "uid_map").write_text(f"0 {TWO} 1\n")
    monkeypatch.setattr(user_numbers, "UID_MAP", config / "uid_map")
    os.chown(theirs, 65534, 65534)
    for path in (theirs / "mine", theirs / "mine/envbuild-store"):
        os.chown(path, 0, 0)
    assert refusal(theirs / "mine") == ""  # in a user namespace root has no number, either
    with pytest.raises(EngineError, match="without a number") as caught:
        check_place(theirs / "envbuild", is_new=True)
    assert caught.value.hint.endswith(f"ENVBUILD_STORE={theirs}/envbuild envbuild store check")
    monkeypatch.undo()
    os.chown(theirs, OUTSIDE, OUTSIDE)
    (folder / "scratch").chmod(0o755)  # root made that folder for its owner, as the home of a user
    for user in (TWO, 0):
        assert as_member(user, lambda: refusal(theirs / "envbuild")) == ""


def test_a_user_namespace_does_not_show_whose_store_is_joined(
    shared: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All other users have one number there, so a folder that was joined outside is known by its handle."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    os.chown(shared, OUTSIDE, GROUP)
    join_stores([shared])
    assert has_joined(shared)
    shared.rename(folder / "older")
    shared.mkdir()
    for path in (shared, folder / "older"):
        os.chown(path, 65534, 65534)
    (folder / "uid_map").write_text("0 50002 1\n")
    monkeypatch.setattr(user_numbers, "UID_MAP", folder / "uid_map")
    assert not has_joined(shared)  # another folder at this path
    monkeypatch.setattr(libc, "file_handle", Mock(side_effect=OSError))
    assert not has_joined(shared), "nothing is known of a folder without a handle"
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.setattr(user_numbers, "UID_MAP", folder / "uid_map")
    with pytest.raises(EngineError, match="has no number in this user namespace"):
        join_stores([shared])
    shared.rmdir()
    (folder / "older").rename(shared)
    assert has_joined(shared)
    (folder / "config/envbuild/stores").write_text(f"65534 65534 {shared}\n")  # of an older envbuild
    assert not has_joined(shared)


def test_a_handle_names_one_folder_for_good(tmp_path: Path) -> None:
    """The next folder gets the inode of a removed one, on ext4 for example."""

    def make() -> bytes:
        (tmp_path / "store").mkdir()
        folder = os.open(tmp_path / "store", os.O_PATH)
        try:
            assert libc.file_handle(folder) == libc.file_handle(folder)
            return libc.file_handle(folder)
        except OSError as error:
            pytest.skip(f"this file system has no handles: {error}")
        finally:
            os.close(folder)
            (tmp_path / "store").rmdir()

    assert len({make() for _ in range(20)}) == 20


@pytest.mark.parametrize(
    ("uid_map", "stranger", "refused"),
    [
        ("0 0 4294967295\n", 65534, True),
        ("0 0 65536\n", ONE, True),  # systemd-nspawn --private-users=identity
        ("0 100000 65536\n", ONE, True),  # LXC, Docker with userns-remap: a machine with users of its own
        ("0 1000 1\n1 100000 65536\n", ONE, True),  # rootless podman and Docker: the same
        ("0 1000 1\n1 100000 65536\n", 65534, False),  # envbuild, buildah unshare: a user of the machine
        ("0 1000 1\n", 65534, False),
    ],
)
def test_root_of_a_container_is_root(
    uid_map: str, stranger: int, refused: bool, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses the store of another user of the container. A store that a group of the machine shares is not one."""
    (shared.parent / "uid_map").write_text(uid_map)
    monkeypatch.setattr(user_numbers, "UID_MAP", shared.parent / "uid_map")
    os.chown(shared, stranger, GROUP)
    shared.chmod(0o3775)
    assert is_root_of(stranger) == may_change(stranger) == refused
    with pytest.raises(EngineError, match="could make commands of root") if refused else contextlib.nullcontext():
        check_place(shared)


def replace_by_link(path: Path, target: Path) -> str:
    """Try to put a link in the place of a folder; return what happened."""
    try:
        path.rename(path.with_name("moved"))
        path.symlink_to(target)
    except OSError as error:
        return error.strerror or ""
    return "replaced"


def test_no_member_puts_a_link_in_the_place_of_a_shared_folder(shared: Path, home: Path) -> None:
    """Also not between the check of the folders and their use, for which a member waits with a lock."""
    folders = [shared / name for name in ("blobs", "blobs/sha256", "packs", "units", "images", "locks")]
    for path in folders:
        assert as_member(ONE, lambda path=path: replace_by_link(path, home)) == "Operation not permitted"
    removed, _ = collect(Store.open(shared), SilentReporter(), dry_run=False, everything=True)
    assert removed == [] and sorted(path.name for path in home.iterdir()) == ["file", "folder"]


def test_members_use_the_shared_folders(shared: Path) -> None:
    def add() -> None:
        store = Store.open(shared)
        (store.tmp / "new").write_text("content")
        assert store.has_blob(store.add_blob(store.tmp / "new"))

    as_member(ONE, add)
    as_member(TWO, add)


def test_an_older_store_of_a_group_is_repaired_by_its_owner_once(shared: Path) -> None:
    (shared / "blobs").chmod(0o2775)
    with pytest.raises(AssertionError, match=r"could replace what is in .*/blobs\n.*root, types: .*store check"):
        as_member(ONE, lambda: Store.open(shared))
    lines: list[str] = []
    Store.open(shared, lines.append)
    assert len(lines) == 1 and "blobs/" in lines[0] and (shared / "blobs").stat().st_mode & 0o7777 == 0o3775
    Store.open(shared, lines.append)
    as_member(ONE, lambda: Store.open(shared))
    assert len(lines) == 1


@pytest.mark.parametrize("name", [".", "packs"])
def test_a_further_user_of_an_access_list_is_not_of_the_group(name: str, shared: Path) -> None:
    """The folder above has a default list, as for a backup: it decides the list of each new folder."""
    path = shared / name
    mode = path.stat().st_mode
    set_list(path, (USER, 7, OUTSIDE), own=7)
    path.chmod(mode)  # as the owner types it: the mask of the list
    with pytest.raises(AssertionError, match=rf"user {OUTSIDE} can write {path}, by its access list"):
        as_member(ONE, lambda: Store.open(shared))
    lines: list[str] = []
    Store.open(shared, lines.append)
    assert lines == [f"store {shared}: access lists of {path} are removed: its group alone shares it"]
    assert not has_access_lists(path) and path.stat().st_mode == mode
    Store.open(shared, lines.append)
    as_member(ONE, lambda: Store.open(shared))
    assert len(lines) == 1


def test_a_group_does_not_get_what_an_access_list_takes_from_it(shared: Path) -> None:
    """The bits of the group in the mode are the mask of the list."""
    mode = shared.stat().st_mode
    set_list(shared, (USER, 7, OUTSIDE), own=5)
    shared.chmod(mode)
    for _ in range(2):
        with pytest.raises(EngineError, match=r"may not write .*, by its access list") as caught:
            Store.open(shared)
        assert caught.value.hint.endswith(f"types: setfacl -b {shared} && chmod 3775 {shared}")
    assert has_access_lists(shared)


def test_a_folder_that_was_replaced_in_an_older_store_is_refused(shared: Path, home: Path) -> None:
    (shared / "blobs").chmod(0o2775)
    assert as_member(ONE, lambda: replace_by_link(shared / "blobs/sha256", home)) == "replaced"
    with pytest.raises(EngineError, match="sha256 is not a folder"):
        Store.open(shared)
    assert sorted(path.name for path in home.iterdir()) == ["file", "folder"]


def test_a_store_in_which_every_user_may_replace_folders_is_refused(folder: Path, home: Path) -> None:
    root = folder / "open"
    Store.open(root)
    root.chmod(0o777)
    with pytest.raises(EngineError, match="every user may write the store") as refused:
        Store.open(root)
    assert refused.value.hint == f"chmod -R o-w {root}"
    assert run_as(OUTSIDE, OUTSIDE, (), lambda: replace_by_link(root / "packs", home)) == "replaced"
    root.chmod(0o755)
    with pytest.raises(EngineError, match=f"packs belongs to the user {OUTSIDE}"):
        Store.open(root)
    (root / "packs").unlink()
    shutil.rmtree(root / "moved")
    Store.open(root)
    (root / "blobs").chmod(0o777)
    with pytest.raises(EngineError, match=r"every user may write .*/blobs"):
        Store.open(root)


@pytest.mark.parametrize("closed", [".", ".."])
def test_a_store_that_is_closed_to_this_user_is_named_with_its_owner(closed: str, folder: Path) -> None:
    root = folder / "above" / "store"
    Store.open(root)
    check_readable(root)
    place = (root / closed).resolve()
    place.chmod(0o700)
    what = "it" if place == root else place
    for use in (lambda: check_readable(root), lambda: list_exports(root), lambda: Store.open(root)):
        with pytest.raises(AssertionError, match=f"cannot be read: {what} belongs to root, and is closed to you\\n"):
            run_as(OUTSIDE, OUTSIDE, (), use)
    check_readable(folder / "none" / "there")


@pytest.mark.parametrize("closed", [".", ".."])
def test_commands_that_do_not_read_a_closed_store_run(closed: str, folder: Path) -> None:
    root = folder / "above/theirs"
    Store.open(root)
    (root / closed).resolve().chmod(0o700)
    assert run_as(OUTSIDE, OUTSIDE, (), lambda: check_former_group(root)) is None


def test_a_store_on_a_disk_like_tmp_has_folders_of_its_user_alone(folder: Path, home: Path) -> None:
    root = folder / "disk"
    root.mkdir()
    root.chmod(0o1777)
    store = Store.open(root)
    assert run_as(OUTSIDE, OUTSIDE, (), lambda: replace_by_link(root / "packs", home)) == "Operation not permitted"
    run_as(OUTSIDE, OUTSIDE, (), lambda: (root / "uv").symlink_to(home))
    for use in (lambda: store.own_folder("uv"), lambda: Store.open(root)):
        with pytest.raises(EngineError, match=f"uv belongs to the user {OUTSIDE}"):
            use()


@pytest.mark.parametrize("name", ["tmp", "layers", "logs", "partial"])
def test_a_work_folder_in_a_shared_store_that_belongs_to_another_member_is_refused(name: str, shared: Path) -> None:
    """As one in a folder of this user that was open once."""
    as_member(ONE, lambda: Store.open(shared))
    work = shared / f"user-{ONE}" / name
    work.rmdir()
    work.mkdir()
    shutil.chown(work, TWO)
    work.chmod(0o777)
    with pytest.raises(AssertionError, match=f"{name} belongs to the user {TWO}"):
        as_member(ONE, lambda: Store.open(shared))


def test_a_store_that_an_umask_shares_with_a_group_is_reported_once(folder: Path) -> None:
    """In the folder of a project new folders have its group and the setgid bit, and an umask of 002."""
    root, reported = folder / "mine", list[str]()
    root.mkdir()
    os.chown(root, ONE, GROUP)
    root.chmod(0o2775)

    def open_twice() -> list[str]:
        for _ in range(2):
            prepare_store(root, reported.append)
        return reported

    (line,) = as_member(ONE, open_twice)  # type: ignore[misc]
    assert line.startswith(f"store {root}: the group {GROUP} shares it: it may write the folder")


def test_the_line_that_root_types_for_a_folder_of_a_member_changes_no_other_file(shared: Path, home: Path) -> None:
    """The member can put a link in its place until root types it."""

    def look() -> str:
        try:
            Store.open(shared)
        except EngineError as error:
            return error.hint
        return ""

    (shared / "exports").rmdir()
    (shared / "exports").mkdir()
    os.chown(shared / "exports", TWO, GROUP)
    hint = str(as_member(ONE, look))
    assert hint == f"as root: chown -h root {shared / 'exports'}"
    (shared / "exports").rmdir()
    (shared / "exports").symlink_to(home / "file")
    os.chown(home / "file", ONE, ONE)
    subprocess.run(hint.removeprefix("as root: "), shell=True, check=True)
    assert (home / "file").stat().st_uid == ONE


def test_no_user_takes_the_store_of_another_one(folder: Path) -> None:
    root = folder / "theirs"
    Store.open(root)
    shutil.chown(root, ONE)
    with pytest.raises(EngineError, match=f"belongs to the user {ONE}"):
        Store.open(root)
    with pytest.raises(AssertionError, match=f"belongs to the user {ONE}, who could make your commands"):
        run_as(OUTSIDE, OUTSIDE, (), lambda: Store.open(root))


@pytest.mark.parametrize("umask", [0, 0o002])
def test_a_new_store_is_written_by_its_owner_alone_with_any_umask(umask: int, folder: Path) -> None:
    before = os.umask(umask)
    try:
        store = Store.open(folder / "new" / "store")
        (store.own_folder("git") / "made").touch()
        (store.tmp / "made").touch()
        move_into_store(store.tmp / "made", store.root / "packs" / "made")
    finally:
        os.umask(before)
    Store.open(store.root)
    paths = [store.root.parent, store.root, *store.root.rglob("*")]
    reachable = [path for path in paths if path.stat().st_mode & 0o022 and path.parent.stat().st_mode & 0o011]
    assert reachable == [] and not store.is_shared


@pytest.mark.parametrize(
    ("removed", "what"),
    [
        ([], "a group shared it"),
        (["shared-with-a-group"], "user-0/ is the folder of a member of a group"),  # the store of an older envbuild
        (["shared-with-a-group", "user-0"], f"blobs/ is writable for the group {GROUP}"),
    ],
)
def test_a_store_that_a_group_shared_is_not_taken_over(removed: list[str], what: str, shared: Path) -> None:
    """Members could write each other's files: a member's pack belongs to the owner, and is like another one."""
    store = Store.open(shared)
    (store.tmp / "made").write_bytes(b"mine")
    move_into_store(store.tmp / "made", store.root / "packs/made")
    as_member(ONE, lambda: (store.root / "packs/made").write_bytes(b"theirs"))
    shared.chmod(0o755)
    for name in removed:
        subprocess.run(["rm", "-r", str(shared / name)], check=True)
    for opened in (Store.open, check_former_group):
        with pytest.raises(EngineError, match=what) as caught:
            opened(shared)
        assert f"rm -r {shared}" in caught.value.hint


def test_a_store_of_a_group_of_its_user_alone_is_no_store_of_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An umask of 002 makes it, below a folder with the setgid bit."""
    root = folder / "store"
    root.mkdir()
    root.chmod(0o2775)
    for module in (store_folders, former_members):
        monkeypatch.setattr(module, "closed_groups", lambda: frozenset((root.stat().st_gid,)))
    store = Store.open(root)
    (store.root / "packs/made").touch()
    root.chmod(0o755)
    assert Store.open(root).own == root


def test_folders_that_every_user_can_make_are_no_trace_of_members(folder: Path) -> None:
    root = Store.open(folder / "store").root
    root.chmod(0o1777)
    run_as(OUTSIDE, OUTSIDE, (), lambda: (root / f"user-{OUTSIDE}").mkdir())
    run_as(OUTSIDE, OUTSIDE, (), lambda: (root / "shared-with-a-group").touch())
    Store.open(root)
    (root / "shared-with-a-group").unlink()
    root.chmod(0o755)
    with pytest.raises(EngineError, match="is the folder of a member"):
        Store.open(root)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_no_member_removes_the_mark_of_a_shared_store(kind: str, shared: Path) -> None:
    """Nor takes its name first."""
    root = shared
    (root / "shared-with-a-group").unlink()
    take = (
        (lambda: (root / "shared-with-a-group").mkdir()) if kind == "folder" else (root / "shared-with-a-group").touch
    )
    as_member(ONE, take)
    Store.open(root)
    assert (root / "shared-with-a-group").is_file()

    def remove() -> str:
        try:
            (root / "shared-with-a-group").unlink()
        except OSError as error:
            return type(error).__name__
        return "removed"

    assert as_member(ONE, remove) == "PermissionError"


def test_the_folder_of_a_member_is_no_folder_that_another_one_made(shared: Path) -> None:
    """Also for commands that only read: evidence in it would be that of the member."""

    def take() -> None:
        (shared / f"user-{TWO}").mkdir(mode=0o755)

    as_member(ONE, take)
    assert as_member(TWO, lambda: os.path.lexists(own_place(shared))) is False
    made = Path(str(as_member(TWO, lambda: str(Store.open(shared).own))))
    assert made.name.startswith(f"user-{TWO}-") and made.stat().st_uid == TWO
    assert as_member(TWO, lambda: str(own_place(shared))) == str(made)


def test_the_file_of_another_user_is_read(folder: Path) -> None:
    store = Store.open(folder / "store")
    theirs = store.root / "artifacts/x.sqsh"
    theirs.write_bytes(b"x")
    assert is_unchanged(theirs, "0" * 64, SilentReporter())  # of this user: its size and time count
    os.chown(theirs, ONE, ONE)
    assert not is_unchanged(theirs, "0" * 64, SilentReporter())


def test_a_store_that_an_umask_left_open_to_a_group_is_closed_once(folder: Path) -> None:
    """It has no setgid bit, which docs/sites.md sets for a group."""
    root = Store.open(folder / "store").root
    for path in (root, root / "blobs", root / "packs"):
        shutil.chown(path, group=GROUP)
        path.chmod(0o1775)
    lines: list[str] = []
    Store.open(root, lines.append)
    Store.open(root, lines.append)
    assert len(lines) == 1 and "could write in it" in lines[0]  # nothing was in it
    assert {path.stat().st_mode & 0o7777 for path in (root, root / "blobs", root / "packs")} == {0o755}
    root.chmod(0o775)
    assert as_member(ONE, lambda: replace_by_link(root / "packs", folder)) == "replaced"
    with pytest.raises(EngineError, match=f"packs belongs to the user {ONE}"):
        Store.open(root)
