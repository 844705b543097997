"""Commits as tarballs: the same bytes from everywhere, made again from the lock alone, and every way to fail."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from gitmaker import Repo, Served, certify, git, serve_git

from envbuild.console import Quiet
from envbuild.engines.embedded.inputs import TIME
from envbuild.errors import InputError, SpecError
from envbuild.heard import Heard
from envbuild.lock import gitprogram
from envbuild.lock.git import lock_git, obtain_git
from envbuild.lock.gitfetch import Address
from envbuild.lock.gitmodules import origin_of
from envbuild.lock.gitplaces import repositories
from envbuild.lock.lockfile import SourceFile
from envbuild.lock.sources import lock_sources
from envbuild.lock.transfer import Transfer
from envbuild.lock.transport import Transport
from envbuild.recipe import Git
from envbuild.site import Site
from envbuild.store import Store

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(not shutil.which("git"), reason="git is not installed"),
]
ORIGIN = "github:demo/demo"
LONG = "/".join(["folder-with-a-long-name"] * 12) + "/file"
FILES = {
    "README": b"hello\n",
    "b/c": b"1",
    "b-c": b"2",
    "b/ü 中.txt": "ü".encode(),
    "new\nline": b"3",
    "-dash": b"4",
    "empty": b"",
    "big": os.urandom(700_000),
    LONG: b"5",
    ".gitattributes": b"secret export-ignore\nversion export-subst\n*.crlf text eol=crlf\n",
    "secret": b"kept",
    "version": b"$Format:%H$\n",
    "lines.crlf": b"a\nb\n",
}


@pytest.fixture
def demo(tmp_path: Path) -> Repo:
    repo = Repo.make(tmp_path / "work/demo")
    (repo.path / "link").symlink_to("b/c")
    (repo.path / "away").symlink_to("/dev/null")
    (repo.path / "run.sh").write_bytes(b"#!/bin/sh\n")
    (repo.path / "run.sh").chmod(0o755)
    repo.commit(FILES)
    git(repo.path, "tag", "--annotate", "--message", "1", "v1")
    return repo


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "served").mkdir()
    with serve_git(tmp_path / "served") as served:
        yield served


class Desk:
    """A site with a store of its own."""

    def __init__(self, folder: Path, **mirrors: str | Path) -> None:
        given = {f"{prefix}:": (str(place),) for prefix, place in mirrors.items()}
        self.site = Site(folder, mirrors={"python:": (), **given}, use_host=False)
        self.store = Store.open(folder)
        self.talk = Quiet()

    def map(self, origin: str, *places: str | Path) -> Desk:
        self.site = replace(self.site, mirrors={**self.site.mirrors, origin: tuple(str(place) for place in places)})
        return self

    def lock(self, source: Git, known: SourceFile | None = None) -> SourceFile:
        entries = {known.file: known} if known else {}
        return lock_git(self.site, Transport(self.site), self.store, self.talk, source, entries)

    def obtain(self, source: SourceFile) -> None:
        obtain_git(self.site, Transport(self.site), self.store, self.talk, source)

    def members(self, source: SourceFile) -> dict[str, tarfile.TarInfo]:
        with tarfile.open(self.store.blob(source.sha256), "r:") as tar:
            return {member.name.partition("/")[2]: member for member in tar}

    def content(self, source: SourceFile, name: str) -> bytes:
        with tarfile.open(self.store.blob(source.sha256), "r:") as tar:
            file = tar.extractfile(f"{source.file.removesuffix('.tar')}/{name}")
            assert file
            return file.read()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A site whose mirror is the folder of the working trees."""
    return Desk(tmp_path / "store", github=tmp_path / "work")


def wish(repo: Repo, *submodules: str, tag: str = "", name: str = "demo") -> Git:
    return Git(name, f"github:demo/{repo.path.name}", repo.head, tag, submodules)


def state(folder: Path) -> list[tuple[str, int, int]]:
    """What would differ if anything in a folder was written."""
    found = [(str(path), path.lstat()) for path in sorted(folder.rglob("*"))]
    return [(path, about.st_mtime_ns, about.st_size) for path, about in found]


def test_content(demo: Repo, desk: Desk) -> None:
    found = desk.lock(wish(demo, tag="v1"))
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
    assert members["link"].issym() and not desk.talk.lines


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
        digests.add(Desk(tmp_path / f"store{number}", github=place).lock(wish(demo, tag="v1")).sha256)
    whole = (
        bare,
        demo.path,
        demo.path / ".git",
        tmp_path / "worktree",
        f"{server.url}/demo/demo",
        tmp_path / "served/demo",
    )
    for number, place in enumerate(whole):
        digests.add(Desk(tmp_path / f"own{number}").map(ORIGIN, place).lock(wish(demo, tag="v1")).sha256)
    assert len(digests) == 1
    assert (state(demo.path), state(bare)) == before


def test_names_in_no_character_set(tmp_path: Path, desk: Desk) -> None:
    repo = Repo.make(tmp_path / "work/odd")
    (Path(os.fsdecode(os.fsencode(repo.path) + b"/caf\xe9"))).write_bytes(b"x")
    repo.commit({})
    found = desk.lock(wish(repo))
    assert b"caf\xe9" in [os.fsencode(name) for name in desk.members(found)]


def test_what_the_user_configured_does_not_matter(
    demo: Repo, tmp_path: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = desk.lock(wish(demo))
    old = git(demo.path, "hash-object", "README")
    git(demo.path, "replace", old, demo.object("blob", b"other"))
    git(demo.path, "config", "core.autocrlf", "true")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.gitconfig").write_text("[core]\n\tautocrlf = true\n[broken\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "nonsense")
    again = Desk(tmp_path / "store2", github=tmp_path / "work")
    assert again.lock(wish(demo)) == expected


def test_known_entry_does_no_work(demo: Repo, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = desk.lock(wish(demo))
    elsewhere = Desk(tmp_path / "other")
    monkeypatch.setattr(gitprogram, "program", lambda: pytest.fail("git was called"))
    assert elsewhere.lock(wish(demo, tag="v1"), found) == found
    monkeypatch.undo()
    for other in (replace(found, origin=f"{ORIGIN}@{'0' * 40}"), replace(found, submodules={"x": "github:a/b@c"})):
        with pytest.raises(InputError, match="names no mirror"):
            elsewhere.lock(wish(demo), other)


def test_not_a_commit(desk: Desk) -> None:
    with pytest.raises(SpecError, match="names 'v1', which is not a commit"):
        desk.lock(Git("demo", ORIGIN, "v1"))


# submodules


@pytest.fixture
def nested(tmp_path: Path) -> Repo:
    """demo/top with libs/one (relative) and its own deep/two, and libs/three (of another owner)."""
    work = tmp_path / "work"
    two = Repo.make(work / "demo/two", {"two.c": b"2"})
    one = Repo.make(work / "demo/one", {"one.c": b"1"})
    one.link("deep/two", "git@github.com:demo/two.git", two.head)
    three = Repo.make(work / "other/three", {"three.c": b"3"})
    top = Repo.make(work / "demo/top", {"top.c": b"0"})
    top.link("libs/one", "../one.git", one.head)
    top.link("libs/three", "https://github.com/other/three", three.head)
    return top


def test_submodules(nested: Repo, desk: Desk, tmp_path: Path) -> None:
    none = desk.lock(wish(nested, name="none"))
    assert none.submodules == {}
    assert [name for name in desk.members(none) if name.startswith("libs")] == ["libs", "libs/one", "libs/three"]
    everything = desk.lock(wish(nested, "*"))
    assert desk.content(everything, "libs/one/deep/two/two.c") == b"2"
    assert desk.content(everything, "libs/three/three.c") == b"3"
    assert {path: origin.partition("@")[0] for path, origin in everything.submodules.items()} == {
        "libs/one": "github:demo/one",
        "libs/one/deep/two": "github:demo/two",
        "libs/three": "github:other/three",
    }
    first = desk.lock(wish(nested, "libs/one"))
    assert set(first.submodules) == {"libs/one"}
    assert "libs/one/deep/two/two.c" not in desk.members(first)
    assert set(desk.lock(wish(nested, "libs/one/deep/two")).submodules) == {"libs/one", "libs/one/deep/two"}
    assert desk.lock(wish(nested, "libs/one", "libs/one/deep/two", "libs/three")).sha256 == everything.sha256


def test_known_entry_with_all_submodules(nested: Repo, desk: Desk, tmp_path: Path) -> None:
    some, all_of_them = wish(nested, "libs/one"), wish(nested, "*")
    one, everything = desk.lock(some), desk.lock(all_of_them)
    shutil.rmtree(tmp_path / "work")
    assert desk.lock(all_of_them, everything) == everything
    assert desk.lock(some, one) == one
    with pytest.raises(InputError, match="cannot be had"):  # its tarball lacks a submodule that is wanted now
        desk.lock(all_of_them, one)


def test_remade_from_the_lock_alone(nested: Repo, desk: Desk, tmp_path: Path) -> None:
    found = desk.lock(wish(nested, "*"))
    other = Desk(tmp_path / "other", github=tmp_path / "work")
    other.obtain(found)
    assert other.store.blob(found.sha256).read_bytes() == desk.store.blob(found.sha256).read_bytes()
    shutil.rmtree(tmp_path / "work")
    other.obtain(found)  # it is there
    with pytest.raises(InputError, match="cannot be had"):
        Desk(tmp_path / "third", github=tmp_path / "work").obtain(found)


def test_lock_that_was_edited(nested: Repo, desk: Desk, tmp_path: Path) -> None:
    found = replace(desk.lock(wish(nested, "*")), submodules={})
    with pytest.raises(InputError, match="but the lock says"):
        Desk(tmp_path / "other", github=tmp_path / "work").obtain(found)


def test_every_missing_submodule_is_told(nested: Repo, desk: Desk, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "work/other")
    one = Repo(tmp_path / "work/demo/one")
    wanted = wish(nested, "*")
    shutil.rmtree(one.path)
    with pytest.raises(InputError) as caught:
        desk.lock(wanted)
    first, second = caught.value.findings
    assert first.message.startswith(f"the submodule libs/one of github:demo/top@{nested.head} is github:demo/one@")
    assert f"{tmp_path}/work: holds no git repository demo/one.git, demo/one, one.git, one" in first.message
    assert 'mirrors: {"github:other/three": [FOLDER-OR-ADDRESS]}' in second.hint


def test_submodules_that_are_not_there(nested: Repo, desk: Desk) -> None:
    with pytest.raises(InputError, match="has no submodule libs/four") as caught:
        desk.lock(wish(nested, "libs/four", "libs/five"))
    assert len(caught.value.findings) == 2
    assert caught.value.hint == "its submodules: libs/one, libs/three"


def test_submodule_without_an_address(demo: Repo, desk: Desk) -> None:
    git(demo.path, "update-index", "--add", "--cacheinfo", f"160000,{demo.head},stray")
    git(demo.path, "commit", "--quiet", "--message", "stray")
    assert desk.lock(wish(demo, "*")).submodules == {}
    assert "stray" in desk.talk.lines[0] and "left out" in desk.talk.lines[0]
    with pytest.raises(InputError, match=r"its \.gitmodules does not name it"):
        desk.lock(wish(demo, "stray"))


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
    assert origin_of(address, "github:openucx/ucx") == origin


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
def test_address_that_is_none(address: str) -> None:
    with pytest.raises(ValueError, match="address"):
        origin_of(address, "github:openucx/ucx")


# tags


def test_tag_that_was_moved(demo: Repo, desk: Desk, tmp_path: Path, server: Served) -> None:
    wanted = wish(demo, tag="v1")
    moved = demo.commit({"README": b"other"})
    git(demo.path, "tag", "--force", "--annotate", "--message", "1", "v1")
    demo.bare(tmp_path / "served/demo/demo.git")
    for number, place in enumerate((tmp_path / "work", server.url)):
        with pytest.raises(InputError) as caught:
            Desk(tmp_path / f"s{number}", github=place).lock(wanted)
        text = f"the source 'demo' ({ORIGIN}) cannot be locked, because the tag v1 names commit {moved} at {place}"
        assert caught.value.message.startswith(text) and wanted.commit in caught.value.message
        assert caught.value.hint.startswith("the tag was moved upstream")
        assert caught.value.hint.endswith("then change the commit in the recipe")
        desk = Desk(tmp_path / f"t{number}", github=place)
        transport = Transport(desk.site)
        with pytest.raises(InputError) as caught:
            lock_sources(
                desk.site, transport, Transfer(transport, desk.store), desk.store, desk.talk, [], [wanted], {},
                pins={wanted.file: "the commit in recipes/demo.py:3"},
            )  # fmt: skip
        assert caught.value.hint.endswith("look at what changed, then change the commit in recipes/demo.py:3")


def test_place_that_has_other_tags_only(demo: Repo, tmp_path: Path, server: Served) -> None:
    """The commit is locked, and a person is told that upstream may have taken the tag back."""
    demo.bare(tmp_path / "served/demo/demo.git")
    for number, (place, told) in enumerate(((tmp_path / "work", tmp_path / "work/demo"), (server.url, server.url))):
        desk = Desk(tmp_path / f"s{number}", github=place)
        assert desk.lock(wish(demo, tag="v9")) == desk.lock(wish(demo))
        (line,) = desk.talk.lines
        assert line.startswith(f"{ORIGIN} has no tag v9 at {told}") and f"{demo.head[:12]} is locked" in line
        heard = Heard(desk.talk)
        lock_git(desk.site, Transport(desk.site), desk.store, heard, wish(demo, tag="v9"), {})
        assert heard.taken() == [line] and heard.taken() == []
        assert desk.talk.lines == [line, line]


def test_place_without_any_tags(demo: Repo, tmp_path: Path, server: Served) -> None:
    """A mirror may be shallow: the commit is what counts."""
    git(demo.path, "tag", "--delete", "v1")
    demo.bare(tmp_path / "served/demo/demo.git")
    git(demo.path, "clone", "--quiet", "--depth=1", f"file://{demo.path}", str(tmp_path / "shallow/demo"))
    for number, place in enumerate((tmp_path / "work", tmp_path / "shallow", server.url)):
        desk = Desk(tmp_path / f"s{number}", github=place)
        assert desk.lock(wish(demo, tag="v1")) == desk.lock(wish(demo))
        assert not desk.talk.lines


# servers


def test_only_the_commit_is_fetched_once(demo: Repo, tmp_path: Path, server: Served) -> None:
    demo.commit({"big2": os.urandom(10_000)})
    demo.commit({"small": b"x"})
    demo.bare(tmp_path / "served/demo/demo.git")
    desk = Desk(tmp_path / "s", github=server.url)
    found = desk.lock(wish(demo))
    (cache,) = (tmp_path / "s/git").iterdir()
    assert git(cache, "rev-list", "--count", demo.head) == "1"
    assert not (cache / "hooks").exists()
    asked = len(server.asked)
    desk.store.blob(found.sha256).unlink()
    desk.obtain(found)
    assert not [line for line in server.asked[asked:] if ".tar" not in line]  # all but the finished tarball is here


def test_without_the_network_the_cache_serves(demo: Repo, tmp_path: Path) -> None:
    demo.bare(tmp_path / "served/demo/demo.git")
    with serve_git(tmp_path / "served") as server:
        desk = Desk(tmp_path / "s", github=server.url)
        found = desk.lock(wish(demo, tag="v1"))
    assert desk.lock(wish(demo, tag="v1")) == found
    (line,) = desk.talk.lines
    assert f"whether v1 still is {demo.head[:12]}" in line and "connection refused" in line


def test_old_server_that_gives_only_what_is_named(demo: Repo, tmp_path: Path, server: Served) -> None:
    server.old = True
    tagged, expected = wish(demo, tag="v1"), Desk(tmp_path / "x", github=tmp_path / "work").lock(wish(demo))
    demo.commit({"more": b"x"})
    unnamed = wish(demo)
    demo.commit({"more": b"y"})
    demo.bare(tmp_path / "served/demo/demo.git")
    desk = Desk(tmp_path / "s", github=server.url)
    assert desk.lock(tagged).sha256 == expected.sha256
    assert desk.content(desk.lock(unnamed), "more") == b"x"
    assert desk.lock(replace(tagged, tag="")) == expected


def test_server_of_mere_files(demo: Repo, tmp_path: Path, server: Served) -> None:
    server.plain = True
    git(demo.bare(tmp_path / "served/demo/demo.git"), "update-server-info")
    desk = Desk(tmp_path / "s", github=server.url)
    assert desk.lock(wish(demo, tag="v1")) == Desk(tmp_path / "x", github=tmp_path / "work").lock(wish(demo))
    assert not desk.talk.lines


def test_what_a_killed_git_left_is_removed(demo: Repo, tmp_path: Path, server: Served) -> None:
    demo.bare(tmp_path / "served/demo/demo.git")
    desk = Desk(tmp_path / "s", github=server.url)
    desk.lock(wish(demo))
    (cache,) = (tmp_path / "s/git").iterdir()
    (cache / "shallow.lock").touch()
    (cache / "refs/envbuild/x.lock").touch()
    demo.commit({"more": b"x"})
    git(tmp_path / "served/demo/demo.git", "fetch", "--quiet", "origin")
    assert desk.content(desk.lock(wish(demo)), "more") == b"x"


def test_password(demo: Repo, tmp_path: Path, server: Served) -> None:
    demo.bare(tmp_path / "served/demo/demo.git")
    server.password = "me:s3cr/t"
    host = server.url.removeprefix("http://")
    Desk(tmp_path / "s", github=f"http://me:s3cr%2Ft@{host}").lock(wish(demo, tag="v1"))
    for number, place in enumerate((f"http://me:wr0ng@{host}", server.url)):
        with pytest.raises(InputError, match="HTTP 401: it asks for a password") as caught:
            Desk(tmp_path / f"t{number}", github=place).lock(wish(demo))
        assert "wr0ng" not in str(caught.value)


def test_proxy(demo: Repo, tmp_path: Path, server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    demo.bare(tmp_path / "served/demo/demo.git")
    desk = Desk(tmp_path / "s", github="http://forge.invalid")
    desk.site = replace(desk.site, proxy=server.url)
    desk.lock(wish(demo, tag="v1"))
    assert "POST http://forge.invalid/demo/demo.git/git-upload-pack" in server.asked


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
def test_certificates(demo: Repo, tmp_path: Path) -> None:
    demo.bare(tmp_path / "served/demo/demo.git")
    key, certificate = certify(tmp_path)
    with serve_git(tmp_path / "served", key, certificate) as server:
        desk = Desk(tmp_path / "s", github=server.url)
        with pytest.raises(InputError, match="its certificate is not trusted"):
            desk.lock(wish(demo))
        for number, trust in enumerate(({"ca_bundle": certificate}, {"insecure_hosts": ("127.0.0.1",)})):
            other = Desk(tmp_path / f"t{number}", github=server.url)
            other.site = replace(other.site, **trust)
            other.lock(wish(demo, tag="v1"))


@pytest.mark.parametrize("place", ["ssh://me@host{root}", "me@host:{root}"])
def test_ssh(demo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    demo.bare(tmp_path / "served/demo/demo.git")
    (tmp_path / "bin").mkdir()
    ssh = tmp_path / "bin/ssh"  # what a login on the other machine would run, here
    ssh.write_text('#!/bin/sh\nfor last; do :; done\necho "$*" >>"$0.log"\neval "$last"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(ssh))
    address = place.format(root=tmp_path / "served")
    found = Desk(tmp_path / "s", github=address).lock(wish(demo, tag="v1"))
    assert found == Desk(tmp_path / "x", github=tmp_path / "work").lock(wish(demo))
    assert "me@host" in (tmp_path / "bin/ssh.log").read_text()
    with pytest.raises(InputError, match="does not appear to be a git repository"):
        Desk(tmp_path / "t", github=address).lock(Git("x", "github:demo/none", demo.head))


def test_repository_of_another_host(tmp_path: Path) -> None:
    def addresses(site: Site) -> list[str]:
        found = repositories(site, Transport(site), Store(tmp_path), "git:git.example.org/a/b", print)
        return [address for place in found if isinstance(place, Address) for address in place.addresses]

    assert addresses(Site(tmp_path, mirrors={"python:": ()})) == [
        "https://git.example.org/a/b.git",
        "https://git.example.org/a/b",
    ]
    assert addresses(Site(tmp_path, mirrors={"python:": ()}, use_host=False)) == []
    mirrored = Site(tmp_path, mirrors={"python:": (), "git:git.example.org/": ("https://mirror.example.org/x/",)})
    assert addresses(mirrored) == ["https://mirror.example.org/x/a/b.git", "https://mirror.example.org/x/a/b"]


def test_server_that_is_not_there(demo: Repo, tmp_path: Path) -> None:
    with serve_git(tmp_path) as server:
        url = server.url
    desk = Desk(tmp_path / "s").map("github:", tmp_path / "none", tmp_path, url)
    with pytest.raises(InputError) as caught:
        desk.lock(wish(demo))
    assert caught.value.message == (
        f"the source {ORIGIN}@{demo.head} (demo-{demo.head[:12]}.tar) cannot be had; looked at:\n"
        f"  {tmp_path}/none: no such folder\n"
        f"  {tmp_path}: holds no git repository demo/demo.git, demo/demo, demo.git, demo\n"
        f"  {url}/demo/demo: connection refused"
    )
    assert caught.value.hint == (
        f'write into site.yaml:  mirrors: {{"{ORIGIN}": [FOLDER-OR-ADDRESS]}}  and put a clone of that repository there'
    )


# what cannot be had, and what is refused


def test_commit_that_nobody_has(demo: Repo, desk: Desk, tmp_path: Path, server: Served) -> None:
    demo.bare(tmp_path / "served/demo/demo.git")
    desk.map("github:", tmp_path / "work", server.url)
    with pytest.raises(InputError) as caught:
        desk.lock(Git("demo", ORIGIN, "1" * 40, "v1"))
    assert f"{demo.path}/.git: it does not have this commit" in caught.value.message
    assert f"{server.url}/demo/demo: it does not have this commit" in caught.value.message


def test_next_place_is_taken(demo: Repo, tmp_path: Path) -> None:
    stale = demo.bare(tmp_path / "stale/demo/demo.git")
    demo.commit({"more": b"x"})
    git(demo.path, "tag", "--force", "v1")
    found = Desk(tmp_path / "s").map("github:", tmp_path / "stale", tmp_path / "work").lock(wish(demo, tag="v1"))
    assert found.sha256 and stale.is_dir()


def test_working_tree_that_leads_nowhere(demo: Repo, desk: Desk, tmp_path: Path) -> None:
    for text in ("gitdir: .", "gitdir: /nowhere", ""):
        (tmp_path / "work/other").mkdir(exist_ok=True)
        (tmp_path / "work/other/.git").write_text(text)
        with pytest.raises(InputError, match="holds no git repository"):
            desk.lock(Git("x", "github:other", demo.head))


def test_tag_object_in_place_of_a_commit(demo: Repo, desk: Desk) -> None:
    with pytest.raises(InputError, match="is a tag there, not a commit"):
        desk.lock(Git("demo", ORIGIN, git(demo.path, "rev-parse", "v1")))


def test_partial_clone(demo: Repo, tmp_path: Path) -> None:
    git(demo.path, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "--quiet", "--bare", "--filter=blob:none", demo.path.as_uri(), str(tmp_path / "p.git"))
    before = state(tmp_path / "p.git")
    with pytest.raises(InputError, match=r"p\.git: (it lacks \d+ of the commit's|git cannot read it)"):
        Desk(tmp_path / "s").map(ORIGIN, tmp_path / "p.git").lock(wish(demo))
    assert state(tmp_path / "p.git") == before


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ([b"../x"], "leave its folder"),
        ([b"/etc/x"], "leave its folder"),
        ([b".."], "leave its folder"),
        ([b".GIT"], "steer git"),
        ([b"a", b"a"], "'a' twice"),
    ],
)
def test_hostile_path(demo: Repo, desk: Desk, names: list[bytes], why: str) -> None:
    blob = demo.object("blob", b"x")
    commit = demo.hostile(*((b"100644", name, blob) for name in names))
    with pytest.raises(InputError, match=why):
        desk.lock(Git("demo", ORIGIN, commit))
    assert not list((desk.store.root / "blobs/sha256").iterdir())


def test_hostile_file_below_a_link(demo: Repo, desk: Desk) -> None:
    inner = demo.object("tree", b"100644 x\0" + bytes.fromhex(demo.object("blob", b"x")))
    link = demo.object("blob", b"/etc")
    with pytest.raises(InputError, match="twice"):
        desk.lock(Git("demo", ORIGIN, demo.hostile((b"120000", b"a", link), (b"40000", b"a", inner))))
    with pytest.raises(InputError, match="without a target"):
        desk.lock(Git("demo", ORIGIN, demo.hostile((b"120000", b"a", demo.object("blob", b"x\0y")))))
    with pytest.raises(InputError, match="unknown kind"):
        desk.lock(Git("demo", ORIGIN, demo.hostile((b"60000", b"a", link))))


def test_old_modes(demo: Repo, desk: Desk) -> None:
    blob = demo.object("blob", b"x")
    found = desk.lock(Git("demo", ORIGIN, demo.hostile((b"100600", b"a", blob), (b"100775", b"b", blob))))
    assert (desk.members(found)["a"].mode, desk.members(found)["b"].mode) == (0o644, 0o755)


def test_mirror_with_other_content_under_a_hash(demo: Repo, desk: Desk) -> None:
    def loose(sha: str) -> Path:
        return demo.path / ".git/objects" / sha[:2] / sha[2:]

    right, wrong = demo.object("blob", FILES["README"]), demo.object("blob", b"jello\n")
    loose(right).chmod(0o644)
    loose(right).write_bytes(loose(wrong).read_bytes())
    with pytest.raises(InputError, match=f"the blob {right} has other content"):
        desk.lock(wish(demo))


def test_pointer_files(demo: Repo, desk: Desk) -> None:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12345\n"
    demo.commit({"weights.bin": text.encode()})
    desk.lock(wish(demo))
    assert "weights.bin only point to content that Git LFS keeps elsewhere" in desk.talk.lines[0]


def test_no_git(demo: Repo, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = wish(demo)
    gitprogram.program.cache_clear()
    monkeypatch.setenv("PATH", "/nowhere")
    try:
        with pytest.raises(InputError, match="need the program git") as caught:
            desk.lock(wanted)
    finally:
        monkeypatch.undo()
        gitprogram.program.cache_clear()
    assert caught.value.hint == "sudo apt install git"


# finished tarballs


def test_finished_tarball_of_a_mirror(nested: Repo, desk: Desk, tmp_path: Path, server: Served) -> None:
    wanted = wish(nested, "*")
    found = desk.lock(wanted)
    shutil.copy(desk.store.blob(found.sha256), tmp_path / "served" / found.file)
    server.plain = True
    shutil.rmtree(tmp_path / "work")
    for number, place in enumerate((tmp_path / "served", server.url)):
        other = Desk(tmp_path / f"s{number}", github=place)
        other.obtain(found)
        assert other.store.has_blob(found.sha256)
        fresh = Desk(tmp_path / f"t{number}", github=place)
        assert fresh.lock(wanted, found) == found  # it shows that no submodule is missing


def test_tarball_with_other_content(demo: Repo, desk: Desk, tmp_path: Path) -> None:
    found = desk.lock(wish(demo))
    (tmp_path / "work" / found.file).write_bytes(b"other")
    other = Desk(tmp_path / "other", github=tmp_path / "work")
    other.obtain(found)  # made again
    assert other.store.has_blob(found.sha256)
    shutil.rmtree(demo.path)
    with pytest.raises(InputError, match=f"{found.file}: it has other content") as caught:
        Desk(tmp_path / "third", github=tmp_path / "work").obtain(found)
    assert "holds no git repository" in caught.value.message


def test_tarball_unpacks(nested: Repo, desk: Desk, tmp_path: Path) -> None:
    found = desk.lock(wish(nested, "*"))
    with tarfile.open(fileobj=io.BytesIO(desk.store.blob(found.sha256).read_bytes())) as tar:
        tar.extractall(tmp_path / "out", filter="data")
    (top,) = (tmp_path / "out").iterdir()
    assert top.name == found.file.removesuffix(".tar")
    assert (top / "libs/one/one.c").read_bytes() == b"1"
