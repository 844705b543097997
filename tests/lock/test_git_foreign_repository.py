"""Folders of repositories that another user may write: nothing there leads git to a private repository."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.core.errors import InputError
from envbuild.lock.git.foreign_repository import LARGEST, find_way_out
from envbuild.lock.git.repositories import find_git_directory
from tests.support.git_server import Repo, git
from tests.support.git_site import MARKS, Desk, git_source
from tests.support.git_site import demo as demo  # a fixture

pytestmark = [
    *MARKS,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user"),
]
OTHER = 61001


def borrow(bare: Path, private: Path) -> None:
    (bare / "objects/info").mkdir(exist_ok=True)
    (bare / "objects/info/alternates").write_text(f"{private}/objects\n")


def link_tag(bare: Path, private: Path) -> None:
    (bare / "refs/tags/v1").unlink(missing_ok=True)
    (bare / "packed-refs").unlink(missing_ok=True)
    (bare / "refs/tags/v1").symlink_to(private / "refs/heads/main")


def link_objects(bare: Path, private: Path) -> None:
    (bare / "objects").rename(bare / "before")
    (bare / "objects").symlink_to(private / "objects")


def link_all(bare: Path, private: Path) -> None:
    bare.rename(bare.with_name("before"))
    bare.symlink_to(private)


def name_folder(bare: Path, private: Path) -> None:
    bare.rename(bare.with_name("before"))
    bare.with_name("demo").mkdir()
    (bare.with_name("demo") / ".git").write_text(f"gitdir: {private}")


def share(bare: Path, private: Path) -> None:
    (bare / "commondir").write_text(str(private))


def own_all(folder: Path, owner: int) -> None:
    for inner, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(Path(inner, name), owner, -1, follow_symlinks=False)
    os.chown(folder, owner, -1)


@pytest.mark.parametrize("lead", [borrow, link_tag, link_objects, link_all, name_folder, share])
def test_a_repository_of_another_user_leads_to_no_other(
    demo: Repo, tmp_path: Path, lead: Callable[[Path, Path], None]
) -> None:
    demo.commit({"file": b"x"})
    private = Path(demo.bare(tmp_path / "private/demo.git"))
    bare = Path(demo.bare(tmp_path / "mirror/demo/demo.git"))
    lead(bare, private)
    own_all(tmp_path / "mirror", OTHER)
    with pytest.raises(InputError, match="may lead elsewhere by another user"):
        Desk(tmp_path / "s", github=tmp_path / "mirror").lock(git_source(demo))
    own_all(tmp_path / "mirror", 0)
    if lead is not link_tag:
        assert Desk(tmp_path / "s2", github=tmp_path / "mirror").lock(git_source(demo)).sha256


@pytest.mark.parametrize("place", ["project/../mirror", "home/pub/mirror", "mirror"])
def test_a_link_on_any_way_to_the_place_leads_to_no_other(demo: Repo, tmp_path: Path, place: str) -> None:
    """The place as the site names it: with `..`, or below a link of another user."""
    demo.commit({"file": b"x"})
    (tmp_path / "project").mkdir()
    (tmp_path / "home").mkdir()
    if place == "home/pub/mirror":
        demo.bare(tmp_path / "private/mirror/demo/demo.git")
        (tmp_path / "home/pub").symlink_to(tmp_path / "private")
    else:
        demo.bare(tmp_path / "private/demo.git")
        (tmp_path / "mirror/demo").mkdir(parents=True)
        (tmp_path / "mirror/demo/demo.git").symlink_to(tmp_path / "private/demo.git")
        own_all(tmp_path / "mirror", OTHER)
    own_all(tmp_path / "home", OTHER)
    with pytest.raises(InputError, match="may lead elsewhere by another user"):
        Desk(tmp_path / "s", github=tmp_path / place).lock(git_source(demo))


def test_a_link_of_another_user_on_the_way_that_a_git_file_names_leads_to_no_other(demo: Repo, tmp_path: Path) -> None:
    """The git directory of a working tree may be anywhere, below a folder of that user, too."""
    demo.bare(tmp_path / "private/demo.git")
    named = tmp_path / "mirror/demo/demo"
    named.mkdir(parents=True)
    (tmp_path / "theirs").symlink_to(tmp_path / "private")
    (named / ".git").write_text(f"gitdir: {tmp_path}/theirs/demo.git\n")
    assert Desk(tmp_path / "s", github=tmp_path / "mirror").lock(git_source(demo)).sha256
    os.chown(tmp_path / "theirs", OTHER, -1, follow_symlinks=False)
    with pytest.raises(InputError, match="may lead elsewhere by another user"):
        Desk(tmp_path / "s2", github=tmp_path / "mirror").lock(git_source(demo))


def test_a_git_file_without_end_takes_no_memory(tmp_path: Path) -> None:
    with (tmp_path / ".git").open("wb") as file:
        file.write(b"gitdir: demo.git\n" + b" " * 4096)
        file.truncate(1 << 40)
    (tmp_path / "demo.git/objects").mkdir(parents=True)
    (tmp_path / "demo.git/HEAD").touch()
    assert find_git_directory(tmp_path) == tmp_path / "demo.git"


def test_a_link_to_a_repository_of_its_own_owner_is_followed(demo: Repo, tmp_path: Path) -> None:
    demo.bare(tmp_path / "mirror-7/demo/demo.git")
    (tmp_path / "mirror").symlink_to("mirror-7")
    own_all(tmp_path / "mirror-7", OTHER)
    os.chown(tmp_path / "mirror", OTHER, -1, follow_symlinks=False)
    assert Desk(tmp_path / "s", github=tmp_path / "mirror").lock(git_source(demo)).sha256


@pytest.mark.parametrize(
    "text",
    [
        "[include]\n path = /tmp/fifo\n",
        "[extensions]\n partialClone = o\n",
        '[core] [ IncludeIf "gitdir:/"] path = x',
        "#" * LARGEST,
    ],
)
def test_settings_of_another_user_that_include_others_are_refused(demo: Repo, tmp_path: Path, text: str) -> None:
    """git opens any file that they name, and waits for a FIFO."""
    bare = Path(demo.bare(tmp_path / "mirror/demo/demo.git"))
    with (bare / "config").open("a") as file:
        file.write(text)
    assert find_way_out(bare, bare) is None
    own_all(tmp_path / "mirror", OTHER)
    assert find_way_out(bare, bare) == bare / "config"


def test_a_plain_repository_of_another_user_is_read(demo: Repo, tmp_path: Path) -> None:
    bare = Path(demo.bare(tmp_path / "mirror/demo/demo.git"))
    git(bare, "repack", "-a", "-d", "-q")
    own_all(tmp_path / "mirror", OTHER)
    assert Desk(tmp_path / "s", github=tmp_path / "mirror").lock(git_source(demo)).sha256


def test_a_folder_that_cannot_be_listed_is_a_way_out(
    demo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git opens what is in it by its name. Root may list every folder, so the error is made here."""
    bare = Path(demo.bare(tmp_path / "mirror/demo/demo.git"))
    scan = os.scandir

    def scandir(folder: str) -> object:
        if str(folder).endswith("refs/tags"):
            raise PermissionError(13, "Permission denied", folder)
        return scan(folder)

    assert find_way_out(bare, bare) is None
    monkeypatch.setattr(os, "scandir", scandir)
    assert find_way_out(bare, bare) == bare / "refs/tags"


def test_a_fifo_of_another_user_is_refused_and_a_socket_of_ones_own_is_not(demo: Repo, tmp_path: Path) -> None:
    """git would wait for the first for ever; its own daemon for a working tree makes the second."""
    bare = Path(demo.bare(tmp_path / "mirror/demo/demo.git"))
    with socket.socket(socket.AF_UNIX) as own:
        before = Path.cwd()
        os.chdir(bare)  # the path of a socket is short
        try:
            own.bind("fsmonitor--daemon.ipc")
        finally:
            os.chdir(before)
        assert find_way_out(bare, bare) is None
        os.mkfifo(bare / "refs/tags/v9")
        os.chown(bare / "refs/tags/v9", OTHER, -1)
        assert find_way_out(bare, bare) == bare / "refs/tags/v9"
