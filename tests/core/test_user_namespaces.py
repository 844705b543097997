"""Owners and groups as a user namespace shows them: all users without a number there have the same one."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.core import ownership, user_numbers
from envbuild.core.judged_links import ForeignLinkError, check_links, open_judged
from envbuild.core.ownership import closed_groups, own_groups, own_users, private_groups

pytestmark = pytest.mark.unit
OTHERS, ME, TEAM = 65_534, 54_321, 54_400
Enter = Callable[[str, str], None]


@pytest.fixture
def enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Enter:
    """Return a function that lets this process see the maps of a namespace (user_namespaces(7))."""

    def enter(uid_map: str, gid_map: str) -> None:
        for name, text in (("UID_MAP", uid_map), ("GID_MAP", gid_map)):
            (tmp_path / name).write_text(f"{text}\n")
            monkeypatch.setattr(user_numbers, name, tmp_path / name)

    return enter


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_link_of_another_user_leads_to_no_file_of_a_third_one(
    enter: Enter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one cannot read that file, and this user, of its group, would copy it to where all read it."""
    file, link = tmp_path / "private", tmp_path / "link"
    file.write_text("theirs")
    link.symlink_to(file)
    for path in (tmp_path, file, link):
        os.chown(path, OTHERS, OTHERS, follow_symlinks=False)
    check_links(link, own_users())
    enter(f"0 {ME} 1", f"0 {ME} 1")
    for look in (lambda: check_links(link, own_users()), lambda: open_judged(link, own_users())):
        with pytest.raises(ForeignLinkError):
            look()
    monkeypatch.setattr(ownership, "is_folder_of_root", lambda folder, status: True)
    check_links(link, own_users(), own=True)  # as /var/run: no user but root can have made it
    tmp_path.chmod(0o1777)
    with pytest.raises(ForeignLinkError):
        check_links(link, own_users())
    file.unlink()
    with pytest.raises(ForeignLinkError):  # its owner can make it lead elsewhere
        check_links(link, own_users(), own=True)
    with pytest.raises(FileNotFoundError):
        check_links(link, own_users())


def test_a_group_without_a_number_is_not_a_group_of_the_user(enter: Enter, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Apptainer, bubblewrap and `unshare -c`: it can be any group of the machine."""
    monkeypatch.setattr(os, "geteuid", lambda: ME)
    monkeypatch.setattr(os, "getegid", lambda: ME)
    monkeypatch.setattr(os, "getgroups", lambda: [ME, OTHERS])
    assert own_groups() == {ME, OTHERS}
    enter(f"{ME} {ME} 1", f"{ME} {ME} 1")
    assert own_groups() == {ME}


@pytest.mark.parametrize("members", [[], ["colleague"]])
def test_root_of_a_user_namespace_is_not_known_to_be_alone_in_its_group(
    members: list[str], enter: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number there is 0: others of the group outside, or of group 0 of a container, write its files as well."""
    user = pwd.struct_passwd(("me", "x", ME, TEAM, "", "/", ""))
    group = grp.struct_group(("me", "x", TEAM, members))
    alone = frozenset() if members else frozenset((TEAM,))
    monkeypatch.setattr(pwd, "getpwall", lambda: [user])
    monkeypatch.setattr(pwd, "getpwuid", {ME: user}.__getitem__)
    monkeypatch.setattr(grp, "getgrgid", {TEAM: group}.__getitem__)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "getegid", lambda: 0)
    assert closed_groups() == private_groups() == frozenset()  # root of the machine
    enter(f"0 {ME} 1\n1 100000 65536", f"0 {TEAM} 1\n1 100000 65536")
    assert closed_groups() == private_groups() == frozenset()
    monkeypatch.setattr(os, "geteuid", lambda: ME)
    monkeypatch.setattr(os, "getegid", lambda: TEAM)
    assert private_groups() == frozenset()
    enter(f"{ME} {ME} 1", f"{TEAM} {TEAM} 1")  # Apptainer, bubblewrap
    assert closed_groups() == private_groups() == alone
