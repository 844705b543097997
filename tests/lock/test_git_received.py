"""Objects that git receives of servers: their limit for one source, and what a fetch that fails leaves."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.errors import EngineError, EnvbuildError, InputError
from envbuild.lock.git import git_program, tarball
from envbuild.lock.git.lock_commit import lock_commit, obtain_commit
from envbuild.net.limits import DownloadLimits
from envbuild.net.transport import Transport
from tests.support.git_server import Repo, Served, git
from tests.support.git_site import MARKS, Desk, git_source
from tests.support.git_site import demo as demo  # a fixture
from tests.support.git_site import server as server  # a fixture
from tests.support.http_server import Handler, serving
from tests.support.time_limit import ends_within

pytestmark = MARKS
NUMBER = 8


def stored(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def loose(bare: Path) -> Path:
    """Make each object of a repository a file of its own, as a server of plain files may have it."""
    packs = [pack.read_bytes() for pack in (bare / "objects/pack").glob("*.pack")]
    for file in (bare / "objects/pack").iterdir():
        file.unlink()
    for pack in packs:
        git(bare, "unpack-objects", "-q", content=pack)
    git(bare, "update-server-info")
    return bare


@pytest.fixture
def top(tmp_path: Path, server: Served) -> Repo:
    """Return a repository with submodules of 1 MiB, each a repository of its own on the server, some in another one."""
    work = tmp_path / "work/demo"
    for at in range(NUMBER):
        part = Repo.make(work / f"part{at}", {"large": os.urandom(1 << 20)})
        if at == NUMBER - 1:
            part.link("deep", "../part0", git(work / "part0", "rev-parse", "HEAD"))
        part.bare(tmp_path / f"served/demo/part{at}.git")
    top = Repo.make(work / "top", {"top.c": b"0"})
    for at in range(1, NUMBER):
        top.link(f"part{at}", f"../part{at}", git(work / f"part{at}", "rev-parse", "HEAD"))
    top.bare(tmp_path / "served/demo/top.git")
    return top


def test_the_repositories_of_all_submodules_together(top: Repo, tmp_path: Path, server: Served) -> None:
    """No repository has more than the limit."""
    locked = Desk(tmp_path / "other", github=tmp_path / "work").lock(git_source(top, "*"))
    assert len(locked.submodules) == NUMBER

    def lock(desk: Desk, transport: Transport) -> object:
        return lock_commit(desk.site, transport, desk.store, desk.reporter, git_source(top, "*"), {})

    def obtain(desk: Desk, transport: Transport) -> object:
        return obtain_commit(desk.site, transport, desk.store, desk.reporter, replace(locked, sha256="0" * 64))

    steps: tuple[Callable[[Desk, Transport], object], ...] = (lock, obtain)
    for step in steps:
        desk = Desk(tmp_path / step.__name__, github=server.url)
        small = Transport(desk.site.network(), limits=DownloadLimits(file=3 << 20))
        with pytest.raises(InputError, match="the repositories of the source have more than 3 MiB with its submodules"):
            step(desk, small)
        assert stored(tmp_path / step.__name__ / "git") < 4 << 20
    desk = Desk(tmp_path / "enough", github=server.url)
    assert lock(desk, Transport(desk.site.network(), limits=DownloadLimits(file=(NUMBER + 1) << 20))) == locked


@pytest.mark.slow_unit
def test_loose_objects_of_a_server_of_static_files(demo: Repo, tmp_path: Path, server: Served) -> None:
    """Each is a file of its own, to which the limit of a file holds."""
    server.plain = True
    for number in range(4):
        demo.commit({f"large{number}": os.urandom(1 << 20)})
    loose(demo.bare(tmp_path / "served/demo/demo.git"))
    desk = Desk(tmp_path / "s", github=server.url)
    small = Transport(desk.site.network(), limits=DownloadLimits(file=2 << 20))
    with pytest.raises(InputError, match="the repositories of the source have more than 2 MiB"):
        lock_commit(desk.site, small, desk.store, desk.reporter, git_source(demo), {})
    assert stored(tmp_path / "s/git") < 1 << 20
    assert desk.lock(git_source(demo)).size > 4 << 20


def part(demo: Repo, bare: Path) -> None:
    """Let a server of plain files lack a file of the commit."""
    blob = git(demo.path, "rev-parse", "HEAD:large3")
    (bare / f"objects/{blob[:2]}/{blob[2:]}").unlink()


@pytest.mark.slow_unit
def test_a_part_of_a_commit_is_not_taken_for_all_of_it(demo: Repo, tmp_path: Path, server: Served) -> None:
    """The server answers with an error in the middle, later it does not; no other command is needed."""
    server.plain = True
    for number in range(4):
        demo.commit({f"large{number}": os.urandom(1 << 20)})
    bare = loose(demo.bare(tmp_path / "served/demo/demo.git"))
    shutil.copytree(bare, tmp_path / "whole")
    part(demo, bare)
    desk = Desk(tmp_path / "s", github=server.url)
    with pytest.raises(InputError, match="is not available"):
        desk.lock(git_source(demo))
    assert stored(tmp_path / "s/git") < 1 << 20 and not list(desk.store.tmp.iterdir())
    shutil.rmtree(bare)
    (tmp_path / "whole").rename(bare)
    assert desk.lock(git_source(demo)).size > 4 << 20


@pytest.mark.slow_unit
@pytest.mark.parametrize("plain", [False, True], ids=["smart", "plain"])
@pytest.mark.parametrize("room", ["size=3m", "size=600k", "size=20m,nr_inodes=36"])
def test_a_full_disk_is_not_a_fault_of_a_server(
    demo: Repo, tmp_path: Path, server: Served, plain: bool, room: str
) -> None:
    """Nothing of what filled it remains."""
    server.plain = plain
    for number in range(4):
        demo.commit({f"large{number}": os.urandom(1 << 20)})
    loose(demo.bare(tmp_path / "served/demo/demo.git"))
    (small := tmp_path / "small").mkdir()
    command = ["mount", "-t", "tmpfs", "-o", room, "none", str(small)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mount needs root and CAP_SYS_ADMIN")
    try:
        desk = Desk(small, github=server.url)
        with pytest.raises(EngineError, match=f"the store {small} is full"):
            desk.lock(git_source(demo))
        left = stored(small)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
    assert left < 1 << 20


@pytest.mark.parametrize("text", ["No space left on device", "Disk quota exceeded"])
def test_words_of_a_server_are_not_those_of_a_full_disk(demo: Repo, tmp_path: Path, server: Served, text: str) -> None:
    """git repeats some of them as its own; the next place is used."""
    demo.bare(tmp_path / "served/demo/demo.git")

    class Forging(Handler):
        def do_GET(self) -> None:
            lines = [
                "# service=git-upload-pack\n",
                "version 2\n",
                "ls-refs\n",
                "fetch=shallow\n",
                f"object-format={text}\n",
            ]
            packets = [f"{len(line) + 4:04x}{line}" for line in lines]
            content = "".join([packets[0], "0000", *packets[1:], "0000"]).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-git-upload-pack-advertisement")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with serving(Forging) as address:
        desk = Desk(tmp_path / "s").map("github:", address, server.url)
        assert desk.lock(git_source(demo)).size
        alone = Desk(tmp_path / "alone").map("github:", address)
        with pytest.raises(InputError, match=text):
            alone.lock(git_source(demo))


@pytest.mark.slow_unit
def test_what_a_killed_git_left_is_not_taken_for_a_commit(demo: Repo, tmp_path: Path, server: Served) -> None:
    """Of an earlier release, which fetched into the cache itself; a reference was written last."""
    demo.bare(tmp_path / "served/demo/demo.git")
    desk = Desk(tmp_path / "s", github=server.url)
    expected = desk.lock(git_source(demo))
    (cache,) = (tmp_path / "s/git").iterdir()
    loose(cache)
    (cache / "packed-refs").unlink()
    blob = git(demo.path, "rev-parse", "HEAD:big")
    (cache / f"objects/{blob[:2]}/{blob[2:]}").unlink()
    desk.store.blob(expected.sha256).unlink()
    assert desk.lock(git_source(demo)) == expected


@pytest.mark.slow_unit
@pytest.mark.parametrize("kind", ["new", "old", "plain"])
def test_a_later_commit_needs_only_what_is_new(demo: Repo, tmp_path: Path, server: Served, kind: str) -> None:
    """What the cache has is not requested again, with any server."""
    server.old, server.plain = kind == "old", kind == "plain"
    bare = tmp_path / "served/demo/demo.git"
    demo.commit({"large": os.urandom(1 << 20)})
    desk = Desk(tmp_path / 'a "store"\\ of: mine', github=server.url)
    for number in range(3):
        shutil.rmtree(bare, ignore_errors=True)
        git(loose(demo.bare(bare)), "update-server-info")
        git(demo.path, "tag", f"later{number}")
        locked = desk.lock(git_source(demo))
        assert locked.size > 1 << 20
        demo.commit({f"small{number}": os.urandom(1 << 10), "big": os.urandom(1 << 10)})
    assert stored(desk.store.own / "git") < 3 << 20
    shutil.rmtree(bare)
    desk.store.blob(locked.sha256).unlink()
    desk.obtain(locked)  # without a server


@pytest.mark.slow_unit
@pytest.mark.parametrize("earlier", [False, True], ids=["this", "earlier"])
def test_a_commit_in_the_store_that_its_server_has_no_more(
    demo: Repo, tmp_path: Path, server: Served, earlier: bool
) -> None:
    """Its branch was rewritten, at a server without single commits. An earlier release had no reference to it."""
    server.plain = True
    bare = tmp_path / "served/demo/demo.git"
    git(demo.path, "checkout", "-q", "-b", "side")
    demo.commit({"more": b"1"})
    side = git_source(demo)
    git(demo.path, "checkout", "-q", "-")
    demo.commit({"more": b"2"})
    git(demo.bare(bare), "update-server-info")
    desk = Desk(tmp_path / "s", github=server.url)
    desk.lock(git_source(demo))
    expected = Desk(tmp_path / "other", github=tmp_path / "work").lock(side)
    git(demo.path, "branch", "-q", "-D", "side")
    shutil.rmtree(bare)
    demo.commit({"more": b"3"})
    git(demo.bare(bare), "update-server-info")
    desk.lock(git_source(demo))
    if earlier:
        (whole,) = (tmp_path / "s/git").glob("*-whole")
        (whole / "packed-refs").unlink()
    assert desk.lock(side) == expected


@pytest.mark.slow_unit
@pytest.mark.parametrize("left", ["HEAD.lock", "HEAD"])
def test_a_part_of_a_new_cache(demo: Repo, tmp_path: Path, server: Served, left: str) -> None:
    """A git that was killed, or whose disk was full, while it made the repository."""
    demo.bare(tmp_path / "served/demo/demo.git")
    desk = Desk(tmp_path / "s", github=server.url)
    expected = desk.lock(git_source(demo))
    (cache,) = (tmp_path / "s/git").iterdir()
    shutil.rmtree(cache)
    (cache / "refs").mkdir(parents=True)
    (cache / left).write_text("ref: refs/heads/main\n")
    desk.store.blob(expected.sha256).unlink()
    assert desk.lock(git_source(demo)) == expected


@pytest.mark.slow_unit
def test_what_one_place_sends_too_much_does_not_count_for_another(demo: Repo, tmp_path: Path, server: Served) -> None:
    server.plain = True
    source = git_source(demo)
    demo.bare(tmp_path / "served/good/demo.git")
    git(tmp_path / "served/good/demo.git", "update-server-info")
    demo.commit({"large": os.urandom(4 << 20)})
    bare = loose(demo.bare(tmp_path / "served/bad/demo.git"))
    (bare / f"objects/{source.commit[:2]}/{source.commit[2:]}").unlink()
    desk = Desk(tmp_path / "s").map("github:demo/", f"{server.url}/bad", f"{server.url}/good")
    small = Transport(desk.site.network(), limits=DownloadLimits(file=2 << 20))
    assert lock_commit(desk.site, small, desk.store, desk.reporter, source, {}).size


def test_an_index_without_its_pack_is_not_cached(demo: Repo, tmp_path: Path, server: Served) -> None:
    """A server of plain files sends the index of each pack before git knows which it needs; a wrong one would hide what
    an honest server sends later."""
    server.plain = True
    first = demo.head
    bare = demo.bare(tmp_path / "served/demo/demo.git")
    demo.commit({"later": os.urandom(1000)})
    unrelated = Repo.make(tmp_path / "unrelated", {"later": b"another"})  # as many objects
    pack, other = (
        git(repo.path, "pack-objects", "--quiet", "--revs", str(folder / "pack"), content=f"{wanted}\n".encode())
        for repo, wanted, folder in (
            (demo, f"HEAD\n^{first}", bare / "objects/pack"),
            (unrelated, "HEAD", tmp_path),
        )
    )
    git(bare, "update-ref", "refs/heads/main", demo.head)
    git(bare, "update-server-info")
    shutil.copytree(bare, tmp_path / "honest")
    index = bytearray((tmp_path / f"pack-{other}.idx").read_bytes())
    index[-40:-20] = bytes.fromhex(pack)  # the pack that it is of (gitformat-pack(5))
    index[-20:] = hashlib.sha1(index[:-20]).digest()
    wrong = bare / f"objects/pack/pack-{pack}.idx"
    wrong.chmod(0o644)
    wrong.write_bytes(index)
    (bare / "info/refs").write_text(f"{first}\trefs/heads/main\n")
    desk = Desk(tmp_path / "s", github=server.url)
    desk.lock(replace(git_source(demo), commit=first))
    (cache,) = (tmp_path / "s/git").glob("*-whole")
    assert {path.stem for path in cache.glob("objects/pack/*")} == {path.stem for path in cache.glob("**/*.pack")}
    shutil.rmtree(bare)
    (tmp_path / "honest").rename(bare)
    assert desk.lock(git_source(demo)).origin.endswith(demo.head)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)


@pytest.mark.slow_unit
@pytest.mark.parametrize("plain", [False, True], ids=["smart", "plain"])
@pytest.mark.parametrize("kind", ["commit", "tree", "blob", "shallow", "names", "HEAD", "config"])
def test_a_damaged_cache_is_fetched_again(demo: Repo, tmp_path: Path, server: Served, kind: str, plain: bool) -> None:
    server.plain = plain
    git(demo.bare(tmp_path / "served/demo/demo.git"), "update-server-info")
    desk = Desk(tmp_path / "s", github=server.url)
    expected = desk.lock(git_source(demo))
    (cache,) = {path.parents[2] for path in (tmp_path / "s/git").glob("*/objects/pack/*.idx")}
    if kind == "shallow":
        (cache / "shallow").write_text("zzz\n")
    elif kind in ("HEAD", "config"):
        (cache / kind).write_bytes(bytes(20))  # after a power cut
    elif kind == "names":
        (index,) = cache.glob("objects/pack/*.idx")
        flip(index, 8 + 1024 + 20)  # the first byte of the second name (gitformat-pack(5))
    else:
        names = {"commit": "HEAD", "tree": "HEAD^{tree}", "blob": "HEAD:big"}
        sha = git(demo.path, "rev-parse", names[kind])
        (index,) = cache.glob("objects/pack/*.idx")
        rows = [line.split() for line in git(demo.path, "show-index", content=index.read_bytes()).split("\n")]
        start = next(int(row[0]) for row in rows if row[1] == sha)
        flip(index.with_suffix(".pack"), start + 8)
    desk.store.blob(expected.sha256).unlink()
    assert desk.lock(git_source(demo)) == expected


@pytest.mark.slow_unit
@pytest.mark.parametrize("plain", [False, True], ids=["smart", "plain"])
def test_a_commit_that_its_server_has_no_more_remains(
    demo: Repo, tmp_path: Path, server: Served, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache may have the only copy. git accepts objects that fsck does not."""
    server.plain = plain
    bare = demo.bare(tmp_path / "served/demo/demo.git")
    wanted = git_source(demo)
    odd = git(demo.path, "cat-file", "commit", "HEAD").replace("+0000", "+051800")
    git(demo.path, "reset", "--quiet", "--hard", demo.object("commit", f"{odd}\n".encode()))
    git(demo.path, "push", "--quiet", "--force", str(bare), "HEAD:refs/heads/main")
    git(bare, "update-server-info")
    desk = Desk(tmp_path / "s", github=server.url)
    first, expected = git_source(demo), desk.lock(git_source(demo))
    shutil.rmtree(bare)
    other = Repo.make(tmp_path / "work/other", {"other": b"1"})
    other.bare(bare)
    git(bare, "update-server-info")
    with pytest.raises(InputError):
        desk.lock(replace(wanted, commit="1" * 40))
    with monkeypatch.context() as patch:  # git cannot read what it has for want of memory
        patch.setattr(git_program, "LIMITS", replace(git_program.LIMITS, program_memory=1 << 20))
        with pytest.raises(EnvbuildError):
            desk.lock(git_source(other))
    shutil.rmtree(bare)
    desk.store.blob(expected.sha256).unlink()
    assert desk.lock(first) == expected


@pytest.mark.slow_unit
@pytest.mark.parametrize("remote", [False, True], ids=["folder", "server"])
def test_objects_that_take_too_long_to_read(
    demo: Repo, tmp_path: Path, server: Served, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    """A pack of 700 KB can be read for hours. The cache is sound, and is not fetched again."""
    demo.bare(tmp_path / "served/demo/demo.git")
    desk = Desk(tmp_path / "s", github=server.url if remote else tmp_path / "work")
    for module in (git_program, tarball):
        with monkeypatch.context() as patch:
            patch.setattr(module, "LIMIT", -1)
            with pytest.raises(InputError, match="git has not read the objects of the commit within"):
                desk.lock(git_source(demo))
    assert desk.lock(git_source(demo)).size
    assert server.asked.count("/demo/demo.git/git-upload-pack") < 5


def test_a_tarball_with_another_digest_is_not_stored(demo: Repo, tmp_path: Path, server: Served) -> None:
    """A lock of another user may name a repository that this user alone can read; others read the store's files."""
    demo.bare(tmp_path / "served/demo/demo.git")
    locked = Desk(tmp_path / "s", github=server.url).lock(git_source(demo))
    desk = Desk(tmp_path / "t", github=server.url)
    with pytest.raises(InputError, match="but the lock has 0000"):
        transport = Transport(desk.site.network())
        obtain_commit(desk.site, transport, desk.store, desk.reporter, replace(locked, sha256="0" * 64))
    assert list((desk.store.root / "blobs/sha256").iterdir()) == []


def test_one_object_that_takes_too_long_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """git is silent until it has computed the object from all others in a row: 16 MB of them for a day."""
    monkeypatch.setattr(git_program, "git_command", lambda *_, **__: ["sleep", "300"])
    with (
        ends_within(60),
        git_program.ObjectReader(tmp_path, time.monotonic() + 1) as objects,
        pytest.raises(git_program.SlowError),
    ):
        objects.read("1" * 40, "commit")
