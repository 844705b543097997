"""The place of a store: folders and links of another user on the way to it, and stores that a user joined."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from envbuild.core import user_numbers
from envbuild.core.access_lists import remove_access_lists
from envbuild.core.errors import EngineError
from envbuild.core.store.joined import has_joined, join_stores
from envbuild.core.store.place import check_place, find_strange, is_root_of, may_change, places_to_join
from envbuild.core.store.store import Store
from envbuild.core.store.store_folders import check_former_group
from envbuild.core.userns import file_calls
from tests.support.access_lists import USER, set_list
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


def test_the_owner_of_a_folder_of_all_users_can_have_folders_in_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That user can exchange a store there in any case. A store of that user is to be joined all the same, and in a
    user namespace two users have that number."""
    for path, owner, mode in (
        (folder / "data", OUTSIDE, 0o1777),
        (folder / "data/projects", OUTSIDE, 0o755),
        (folder / "data/projects/me", TWO, 0o755),
        (folder / "data/store", OUTSIDE, 0o3775),
    ):
        path.mkdir()
        os.chown(path, owner, GROUP)
        path.chmod(mode)
    data, place = folder / "data", folder / "data/projects/me/envbuild"
    assert as_member(TWO, lambda: [*find_strange(place)]) == []
    assert as_member(TWO, lambda: [*find_strange(data / "store")]) == [data / "store"]
    os.chown(data, 0, 0)
    assert as_member(TWO, lambda: [*find_strange(place)]) == [data / "projects"]
    for path in (data, data / "projects"):
        os.chown(path, 65534, 65534)
    os.chown(place.parent, 0, 0)
    (folder / "uid_map").write_text(f"0 {TWO} 1\n")
    monkeypatch.setattr(user_numbers, "UID_MAP", folder / "uid_map")
    assert [*find_strange(place)] == [data / "projects"]


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
    monkeypatch.setattr(file_calls, "file_handle", Mock(side_effect=OSError))
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


def test_a_store_of_root_is_used_in_a_user_namespace_once_it_is_joined(
    shared: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root has the number of all other users there, also as the owner of a folder on the way."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.setattr(user_numbers, "UID_MAP", folder / "uid_map")
    team = folder / "scratch/team"
    team.mkdir(parents=True)
    team.parent.chmod(0o1777)
    for store in (team / "store", team.parent / "store"):
        shutil.copytree(shared, store)
        os.chown(store, 0, GROUP)
        store.chmod(0o3775)
        ways = [store, *([team] if store.parent == team else [])]
        (folder / "uid_map").write_text("0 0 4294967295\n")
        assert as_member(TWO, lambda store=store: [*find_strange(store)]) == []
        assert as_member(TWO, lambda store=store: places_to_join(store) - {folder}) == {*ways}
        for path in ways:
            os.chown(path, 65534, 65534)
        (folder / "uid_map").write_text(f"0 {TWO} 1\n")
        with pytest.raises(EngineError, match="without a number") as caught:
            check_place(store)
        assert caught.value.hint.endswith(f"ENVBUILD_STORE={store} envbuild store join")
        (folder / "uid_map").write_text("0 0 4294967295\n")
        join_stores(ways)
        (folder / "uid_map").write_text(f"0 {TWO} 1\n")
        check_place(store)


def test_a_handle_names_one_folder_for_good(tmp_path: Path) -> None:
    """The next folder gets the inode of a removed one, on ext4 for example."""

    def make() -> bytes:
        (tmp_path / "store").mkdir()
        folder = os.open(tmp_path / "store", os.O_PATH)
        try:
            assert file_calls.file_handle(folder) == file_calls.file_handle(folder)
            return file_calls.file_handle(folder)
        except OSError as error:
            pytest.skip(f"this file system has no handles: {error}")
        finally:
            os.close(folder)
            (tmp_path / "store").rmdir()

    assert len({make() for _ in range(20)}) == 20


def test_root_does_not_write_into_the_store_of_the_user_who_called_sudo(
    folder: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trees of layers have the ids of their builder: an image of root on them had files of that user."""
    (folder / "own").mkdir()
    os.chown(folder / "own", ONE, ONE)
    as_member(ONE, lambda: str(Store.open(folder / "own/store").root))
    monkeypatch.setenv("SUDO_UID", str(ONE))
    with pytest.raises(EngineError, match="because of whose ids root cannot use the layers there"):
        Store.open(folder / "own/store")
    check_former_group(folder / "own/store")  # commands that only read
    os.chown(shared, ONE, GROUP)
    shared.chmod(0o3775)
    assert Store.open(shared).own.name == "user-0"


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
