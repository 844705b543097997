"""Commits as tarballs: what is in one, the same bytes from everywhere, and what the lock knows already."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.errors import InputError, SpecError
from envbuild.core.fixed_time import TIME
from envbuild.lock.git import git_program
from envbuild.spec.recipe import Git
from tests.support.git_server import Repo, Served, git
from tests.support.git_site import FILES, MARKS, ORIGIN, Desk, git_source, state
from tests.support.git_site import demo as demo  # a fixture
from tests.support.git_site import desk as desk  # a fixture
from tests.support.git_site import server as server  # a fixture

pytestmark = MARKS


def test_content(demo: Repo, desk: Desk) -> None:
    found = desk.lock(git_source(demo, tag="v1"))
    assert (found.file, found.origin) == (f"demo-{demo.head[:12]}.tar", f"{ORIGIN}@{demo.head}")
    assert found.git and found.size == desk.store.blob(found.sha256).stat().st_size and not found.submodules
    members = desk.members(found)
    names = [name.encode() for name in members]
    assert names == sorted(names) and names[0] == b""
    assert {(item.uid, item.gid, item.uname, item.gname, item.mtime) for item in members.values()} == {
        (0, 0, "", "", TIME)
    }
    for name, content in FILES.items():  # no attribute hides a file or changes a byte
        assert desk.content(found, name) == content, name
        assert members[name].mode == 0o644
    assert members["run.sh"].mode == members["b"].mode == 0o755
    assert (members["link"].linkname, members["away"].linkname) == ("b/c", "/dev/null")
    assert members["link"].issym() and not desk.reporter.lines


@pytest.mark.slow_unit
def test_same_bytes_from_every_place(demo: Repo, tmp_path: Path, server: Served) -> None:
    bare = demo.bare(tmp_path / "served/demo/demo.git")
    git(bare, "gc", "--quiet")
    git(bare, "worktree", "add", "--quiet", str(tmp_path / "worktree"), "v1")
    before = state(demo.path), state(bare)
    places = {
        "a folder of clones": tmp_path / "work",
        "a folder of bare mirrors": tmp_path / "served",
        "a file address": (tmp_path / "served").as_uri(),
        "a server": server.url,
    }
    digests = set()
    for number, (_, place) in enumerate(places.items()):
        digests.add(Desk(tmp_path / f"store{number}", github=place).lock(git_source(demo, tag="v1")).sha256)
    whole = (
        bare,
        demo.path,
        demo.path / ".git",
        tmp_path / "worktree",
        f"{server.url}/demo/demo",
        tmp_path / "served/demo",
    )
    for number, place in enumerate(whole):
        digests.add(Desk(tmp_path / f"own{number}").map(ORIGIN, place).lock(git_source(demo, tag="v1")).sha256)
    assert len(digests) == 1
    assert (state(demo.path), state(bare)) == before


def test_names_in_no_character_set(tmp_path: Path, desk: Desk) -> None:
    repo = Repo.make(tmp_path / "work/odd")
    (Path(os.fsdecode(os.fsencode(repo.path) + b"/caf\xe9"))).write_bytes(b"x")
    repo.commit({})
    found = desk.lock(git_source(repo))
    assert b"caf\xe9" in [os.fsencode(name) for name in desk.members(found)]


def test_the_users_git_configuration_is_ignored(
    demo: Repo, tmp_path: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = desk.lock(git_source(demo))
    old = git(demo.path, "hash-object", "README")
    git(demo.path, "replace", old, demo.object("blob", b"other"))
    git(demo.path, "config", "core.autocrlf", "true")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.gitconfig").write_text("[core]\n\tautocrlf = true\n[broken\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "nonsense")
    again = Desk(tmp_path / "store2", github=tmp_path / "work")
    assert again.lock(git_source(demo)) == expected


def test_known_entry_does_no_work(demo: Repo, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = desk.lock(git_source(demo))
    elsewhere = Desk(tmp_path / "other")
    monkeypatch.setattr(git_program, "git_path", lambda: pytest.fail("git was called"))
    assert elsewhere.lock(git_source(demo, tag="v1"), found) == found
    monkeypatch.undo()
    for other in (replace(found, origin=f"{ORIGIN}@{'0' * 40}"), replace(found, submodules={"x": "github:a/b@c"})):
        with pytest.raises(InputError, match="names no mirror"):
            elsewhere.lock(git_source(demo), other)


def test_not_a_commit(desk: Desk) -> None:
    with pytest.raises(SpecError, match="names 'v1', which is not a commit"):
        desk.lock(Git("demo", ORIGIN, "v1"))


@pytest.mark.slow_unit
def test_next_place_is_taken(demo: Repo, tmp_path: Path) -> None:
    stale = demo.bare(tmp_path / "stale/demo/demo.git")
    demo.commit({"more": b"x"})
    git(demo.path, "tag", "--force", "v1")
    found = Desk(tmp_path / "s").map("github:", tmp_path / "stale", tmp_path / "work").lock(git_source(demo, tag="v1"))
    assert found.sha256 and stale.is_dir()


def test_old_modes(demo: Repo, desk: Desk) -> None:
    blob = demo.object("blob", b"x")
    found = desk.lock(Git("demo", ORIGIN, demo.hostile((b"100600", b"a", blob), (b"100775", b"b", blob))))
    assert (desk.members(found)["a"].mode, desk.members(found)["b"].mode) == (0o644, 0o755)


def test_pointer_files(demo: Repo, desk: Desk) -> None:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12345\n"
    demo.commit({"weights.bin": text.encode()})
    desk.lock(git_source(demo))
    assert "weights.bin are pointers to content in Git LFS" in desk.reporter.lines[0]


def test_no_git(demo: Repo, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = git_source(demo)
    git_program.git_path.cache_clear()
    monkeypatch.setenv("PATH", "/nowhere")
    try:
        with pytest.raises(InputError, match="git is not installed") as caught:
            desk.lock(wanted)
    finally:
        monkeypatch.undo()
        git_program.git_path.cache_clear()
    assert caught.value.hint == "sudo apt install git"
