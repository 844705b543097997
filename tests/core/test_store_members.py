"""Other users beside a store, as the kernel sees them: members of the group that shares it, and users outside of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from envbuild.core.access_lists import has_access_lists
from envbuild.core.console import SilentReporter
from envbuild.core.errors import EngineError
from envbuild.core.store import former_members, store_folders
from envbuild.core.store.access import check_readable
from envbuild.core.store.gc import collect
from envbuild.core.store.permissions import move_into_store, own_place
from envbuild.core.store.records import is_unchanged
from envbuild.core.store.store import Store
from envbuild.core.store.store_folders import check_former_group, prepare_store
from envbuild.export.progress_list import list_exports
from tests.support.access_lists import USER, set_list
from tests.support.as_user import run_as
from tests.support.store_members import GROUP, ONE, OUTSIDE, TWO, as_member

pytestmark = [pytest.mark.unit, pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")]


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
