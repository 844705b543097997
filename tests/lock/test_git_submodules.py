"""Submodules of a commit: which are taken, what their addresses mean, and those that are not available."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import Finding, InputError
from envbuild.lock.git.commit_hint import CommitHint
from envbuild.lock.git.lock_commit import lock_commit
from envbuild.lock.git.submodules import submodule_origin
from envbuild.lock.request import LockRequest, UnitRequest
from envbuild.net.transport import Transport
from envbuild.spec.recipe import Git
from tests.support.git_server import Repo, git
from tests.support.git_site import MARKS, Desk, git_source
from tests.support.git_site import demo as demo  # a fixture
from tests.support.git_site import desk as desk  # a fixture
from tests.support.git_site import nested as nested  # a fixture
from tests.support.time_limit import ends_within

pytestmark = MARKS


@pytest.mark.slow_unit
def test_submodules(nested: Repo, desk: Desk, tmp_path: Path) -> None:
    none = desk.lock(git_source(nested, name="none"))
    assert none.submodules == {}
    assert [name for name in desk.members(none) if name.startswith("libs")] == ["libs", "libs/one", "libs/three"]
    everything = desk.lock(git_source(nested, "*"))
    assert desk.content(everything, "libs/one/deep/two/two.c") == b"2"
    assert desk.content(everything, "libs/three/three.c") == b"3"
    assert {path: origin.partition("@")[0] for path, origin in everything.submodules.items()} == {
        "libs/one": "github:demo/one",
        "libs/one/deep/two": "github:demo/two",
        "libs/three": "github:other/three",
    }
    first = desk.lock(git_source(nested, "libs/one"))
    assert set(first.submodules) == {"libs/one"}
    assert "libs/one/deep/two/two.c" not in desk.members(first)
    assert set(desk.lock(git_source(nested, "libs/one/deep/two")).submodules) == {"libs/one", "libs/one/deep/two"}
    assert desk.lock(git_source(nested, "libs/one", "libs/one/deep/two", "libs/three")).sha256 == everything.sha256


def test_known_entry_with_all_submodules(nested: Repo, desk: Desk, tmp_path: Path) -> None:
    some, all_of_them = git_source(nested, "libs/one"), git_source(nested, "*")
    one, everything = desk.lock(some), desk.lock(all_of_them)
    shutil.rmtree(tmp_path / "work")
    assert desk.lock(all_of_them, everything) == everything
    assert desk.lock(some, one) == one
    with pytest.raises(InputError, match="is not available"):  # its tarball lacks a submodule that is wanted now
        desk.lock(all_of_them, one)


def test_every_missing_submodule_is_reported(nested: Repo, desk: Desk, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "work/other")
    one = Repo(tmp_path / "work/demo/one")
    wanted = git_source(nested, "*")
    shutil.rmtree(one.path)
    with pytest.raises(InputError) as caught:
        desk.lock(wanted)
    first, second = caught.value.findings
    assert first.message.startswith(f"the submodule libs/one of github:demo/top@{nested.head} (github:demo/one@")
    assert f"{tmp_path}/work: contains no git repository demo/one.git, demo/one, one.git, one" in first.message
    assert 'mirrors: {"github:other/three": [FOLDER-OR-ADDRESS]}' in second.hint


def test_a_clone_with_the_last_name_of_a_submodule_is_that_of_its_origin_alone(tmp_path: Path) -> None:
    """Any commit can name any repository: the private clone of the same name is another one's."""
    flat = tmp_path / "flat"
    private = Repo.make(flat / "private", {"secret.txt": b"secret"})
    top = Repo.make(flat / "top", {"top.c": b"0"})
    top.link("sub", "https://github.com/mallory/private.git", private.head)
    wanted = Git("demo", "github:mallory/top", top.head, "", ("*",), "no test compiles them")
    desk = Desk(tmp_path / "store", github=flat)
    for url in ("", "https://github.com/us/private.git", "/srv/git/mallory/private"):
        if url:
            git(private.path, "config", "remote.origin.url", url)
        with pytest.raises(InputError, match="does not name github:mallory/private as what it is a clone of"):
            desk.lock(wanted)
    git(private.path, "config", "remote.backup.url", "git@github.com:mallory/private.git")
    assert desk.content(desk.lock(wanted), "sub/secret.txt") == b"secret"
    git(private.path, "config", "--unset", "remote.backup.url")
    shutil.rmtree(tmp_path / "store")
    (flat / "mallory").mkdir()
    private.path.rename(flat / "mallory/private.git")
    assert Desk(tmp_path / "store", github=flat).lock(wanted).submodules


def test_a_commit_reads_no_file_of_this_machine(demo: Repo, desk: Desk, tmp_path: Path) -> None:
    """git reads the file that [include] names in settings: a private clone's, with the name of its repository, or a
    pipe, which does not end."""
    commit = demo.head
    demo.link("lib", "https://github.com/demo/missing", commit)
    modules = (demo.path / ".gitmodules").read_bytes()
    private, pipe = tmp_path / "private", tmp_path / "pipe"
    private.write_text('[submodule "lib"]\nurl = https://git.corp.example/secret-project.git\n')
    os.mkfifo(pipe)
    for file in (private, pipe):
        (demo.path / ".gitmodules").write_bytes(modules + f"[include]\npath = {file}\n".encode())
        git(demo.path, "commit", "--quiet", "--message", "include", ".gitmodules")
        with ends_within(20), pytest.raises(InputError, match=f"github:demo/missing@{commit}"):
            desk.lock(git_source(demo, "*"))


def test_missing_submodules(nested: Repo, desk: Desk) -> None:
    with pytest.raises(InputError, match="has no submodule libs/four") as caught:
        desk.lock(git_source(nested, "libs/four", "libs/five"))
    assert len(caught.value.findings) == 2
    assert caught.value.hint == "its submodules: libs/one, libs/three"


def test_submodule_without_an_address(demo: Repo, desk: Desk) -> None:
    git(demo.path, "update-index", "--add", "--cacheinfo", f"160000,{demo.head},stray")
    git(demo.path, "commit", "--quiet", "--message", "stray")
    assert desk.lock(git_source(demo, "*")).submodules == {}
    assert "stray" in desk.reporter.lines[0] and "left out" in desk.reporter.lines[0]
    with pytest.raises(InputError, match=r"is not listed in \.gitmodules"):
        desk.lock(git_source(demo, "stray"))


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("https://github.com/NVIDIA/cutlass", "github:NVIDIA/cutlass"),
        ("https://user:secret@GitHub.com/NVIDIA/cutlass.git/", "github:NVIDIA/cutlass"),
        ("git@github.com:NVIDIA/cutlass.git", "github:NVIDIA/cutlass"),
        ("ssh://git@github.com:22/NVIDIA/cutlass.git", "github:NVIDIA/cutlass"),
        ("git://github.com/NVIDIA/cutlass.git", "github:NVIDIA/cutlass"),
        ("https://gitlab.com/group/sub/eigen.git", "gitlab:group/sub/eigen"),
        ("https://git.example.org/kleidi/ai", "git:git.example.org/kleidi/ai"),
        ("https://git.example.org:8443/x.git", "git:git.example.org:8443/x"),
        ("../ucc.git", "github:openucx/ucc"),
        ("../../NVIDIA/nccl", "github:NVIDIA/nccl"),
        ("./inner", "github:openucx/ucx/inner"),
    ],
)
def test_address_as_origin(address: str, origin: str) -> None:
    assert submodule_origin(address, "github:openucx/ucx") == origin


@pytest.mark.parametrize(
    "address",
    [
        "/srv/x.git",
        "file:///srv/x.git",
        "x",
        "--upload-pack=touch x",
        "ext::sh -c id",
        "https://github.com/",
        "https://github.com/a/../../b",
        "https://github.com/a/-b",
        "https://github.com/a/b c",
        "https:///a/b",
        "https://host:99999/a",
        "../../../../x",
        "../..",
    ],
)
def test_invalid_addresses_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match="address"):
        submodule_origin(address, "github:openucx/ucx")


def lint(desk: Desk, source: Git) -> list[Finding]:
    """Return the findings of a lock of `source`, which a recipe states at a place of its own."""
    hint = CommitHint(recipe="recipes/demo.py:3:1")
    with pytest.raises(InputError) as caught:
        lock_commit(desk.site, Transport(desk.site.network()), desk.store, desk.reporter, source, {}, hint)
    return list(caught.value.findings)


def test_submodules_that_are_left_out_need_a_reason(nested: Repo, desk: Desk) -> None:
    one, three = lint(desk, git_source(nested, left_out=""))
    assert (
        one.message == f"github:demo/top@{nested.head[:12]} has the submodule libs/one, which the recipe does not fetch"
    )
    assert three.message.endswith("the submodule libs/three, which the recipe does not fetch")
    assert one.where == three.where == "recipes/demo.py:3:1"
    assert one.hint.startswith('write submodules=("libs/one",) to fetch it, or submodules=False, left_out="')
    (deep,) = lint(desk, git_source(nested, "libs/one", "libs/three", left_out=""))
    assert deep.message.endswith("the submodule libs/one/deep/two, which the recipe does not fetch")
    assert deep.hint.startswith('write submodules=("libs/one", "libs/three", "libs/one/deep/two") to fetch it')
    # what the hints name is accepted
    desk.lock(git_source(nested, "libs/one", "libs/three", "libs/one/deep/two", left_out=""))
    desk.lock(git_source(nested, left_out="only documentation"))


def test_submodules_are_fetched_by_default(nested: Repo, desk: Desk, tmp_path: Path) -> None:
    made = desk.lock(Git("demo", "github:demo/top", nested.head))
    assert set(made.submodules) == {"libs/one", "libs/one/deep/two", "libs/three"}
    plain = Repo.make(tmp_path / "work/demo/plain", {"a.c": b"a"})
    assert desk.lock(Git("plain", "github:demo/plain", plain.head, submodules=False)).submodules == {}  # it has none


def test_a_reason_does_not_make_a_lock_outdated(demo: Repo) -> None:
    def digest(source: Git) -> str:
        unit = UnitRequest(git=(source,))
        return LockRequest("x", "debian:13", "debian:13", "amd64", "3.13", {"build-x": unit}).digest()

    assert digest(git_source(demo, left_out="")) == digest(git_source(demo, left_out="why"))
    assert digest(git_source(demo)) == digest(replace(git_source(demo), submodules=()))
    assert digest(git_source(demo)) != digest(git_source(demo, "*"))


@pytest.mark.parametrize("value", [True, "csrc/cutlass", ["csrc/cutlass"]])
def test_submodules_of_another_type_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="a tuple of paths, or False"):
        Git("demo", "github:demo/demo", "0" * 40, submodules=value)
