"""Small repositories that would take all time, memory or disk; names of submodules that would deceive a reader."""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core import bombs
from envbuild.core.errors import InputError
from envbuild.lock.git import source_limits
from envbuild.lock.git import tree as tree_module
from envbuild.lock.git.git_program import ObjectReader, run_git
from envbuild.net.limits import LIMITS
from envbuild.spec.recipe import Git
from tests.support.git_server import Repo, git
from tests.support.git_site import MARKS, ORIGIN, Desk, git_source
from tests.support.git_site import demo as demo  # a fixture
from tests.support.git_site import desk as desk  # a fixture
from tests.support.git_site import nested as nested  # a fixture
from tests.support.time_limit import ends_within

pytestmark = MARKS


def submodules(demo: Repo, commit: str, *names: bytes, address: str = "../demo") -> str:
    """Return a commit that has nothing but `commit` of `address` as submodules."""
    sections = (b'[submodule "%d"]\n\tpath = "%b"\n\turl = %b\n' % (at, name.replace(b"\n", b"\\n"), address.encode())
                for at, name in enumerate(names))  # fmt: skip
    modules = demo.object("blob", b"".join(sections))
    return demo.hostile((b"100644", b".gitmodules", modules), *((b"160000", name, commit) for name in names))


def test_a_commit_twice_in_each_of_many_commits(demo: Repo, desk: Desk) -> None:
    """Nine commits are 1022 submodules, forty would be 2**41."""
    commit = demo.head
    for _ in range(9):
        commit = submodules(demo, commit, b"a", b"b")
    with pytest.raises(InputError, match=r"has more than 1000 submodules \(at least 1022\)") as caught:
        desk.lock(Git("demo", ORIGIN, commit))
    assert "review it" in caught.value.hint
    assert not list((desk.store.root / "blobs/sha256").iterdir())


def test_submodules_within_each_other(demo: Repo, desk: Desk) -> None:
    commit = demo.head
    for _ in range(source_limits.MAX_DEPTH):
        commit = submodules(demo, commit, b"a")
    assert len(desk.lock(Git("demo", ORIGIN, commit)).submodules) == source_limits.MAX_DEPTH
    with pytest.raises(InputError, match="on more than 16 levels"):
        desk.lock(Git("demo", ORIGIN, submodules(demo, commit, b"a")))


def test_files_of_all_submodules_together(nested: Repo, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.lock(git_source(nested, "*"))
    monkeypatch.setattr(source_limits, "MOST", 5)
    with pytest.raises(InputError, match="more than 5 files with its submodules"):
        desk.lock(git_source(nested, "*", name="other"))


def test_one_large_file_many_times(demo: Repo, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = demo.object("blob", bytes(1 << 20))
    commit = demo.hostile(*((b"100644", b"f%02d" % at, blob) for at in range(20)))
    monkeypatch.setattr(source_limits, "MAX_BYTES", 20 << 20)
    assert desk.lock(Git("demo", ORIGIN, commit)).size > 20 << 20
    monkeypatch.setattr(source_limits, "MAX_BYTES", (20 << 20) - 1)
    written = sorted((desk.store.root / "blobs/sha256").iterdir())
    with pytest.raises(InputError, match=r"has 21\.0 MB of files with its submodules"):
        desk.lock(Git("demo", ORIGIN, commit))
    assert sorted((desk.store.root / "blobs/sha256").iterdir()) == written


def test_files_far_larger_than_the_objects_that_hold_them(
    demo: Repo, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One object as many files, and zeros that were compressed: in loose objects and in a pack."""
    monkeypatch.setattr(bombs, "SUSPECT", 2 << 20)
    zeros, noise = demo.object("blob", bytes(1 << 20)), demo.object("blob", os.urandom(16 << 10))
    for blob, most in ((zeros, 2), (noise, 320)):
        names = [b"f%03d" % at for at in range(most + 40)]
        sound = demo.hostile(*((b"100644", name, blob) for name in names[: most - 1]))
        assert desk.lock(Git(f"sound{most}", ORIGIN, sound)).size
        written = sorted((desk.store.root / "blobs/sha256").iterdir())
        bomb = demo.hostile(*((b"100644", name, blob) for name in names))
        for _ in range(2):
            with pytest.raises(InputError, match=r"of files with its submodules, in .* of objects"):
                desk.lock(Git("demo", ORIGIN, bomb))
            git(demo.path, "update-ref", "refs/heads/bomb", bomb)
            git(demo.path, "repack", "-adkq")
        assert sorted((desk.store.root / "blobs/sha256").iterdir()) == written


def test_long_paths_of_one_tree_and_of_all_submodules_together(
    nested: Repo, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree of some kilobytes that contains itself has 2,000,000 paths of 4096 bytes."""
    blob = nested.object("blob", b"x")
    tree = nested.object("tree", b"100644 f\0" + bytes.fromhex(blob))
    for _ in range(12):
        tree = nested.object("tree", b"".join(b"40000 %b\0" % (n * 200) + bytes.fromhex(tree) for n in (b"a", b"b")))
    with pytest.raises(InputError, match=r"more than 2000000 paths, or 4\.2 MB of them"):
        monkeypatch.setattr(tree_module, "MAX_NAMES", 4 << 20)
        desk.lock(Git("demo", "github:demo/top", nested.hostile((b"40000", b"d", tree))))
    monkeypatch.setattr(source_limits, "MAX_NAMES", 10)
    with pytest.raises(InputError, match="more than 10 B of paths with its submodules"):
        desk.lock(git_source(nested, "*"))


def test_each_tree_that_is_in_a_commit_many_times_is_read_once(
    nested: Repo, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit of 23 objects was refused after minutes: its 22 trees contain each other twice."""
    read = []
    reads = ObjectReader.read
    monkeypatch.setattr(ObjectReader, "read", lambda self, *words: read.append(words) or reads(self, *words))
    tree = nested.object("tree", b"100644 f\0" + bytes.fromhex(nested.object("blob", b"x")))
    for _ in range(12):
        tree = nested.object("tree", b"".join(b"40000 %b\0" % n + bytes.fromhex(tree) for n in (b"a", b"b")))
    monkeypatch.setattr(tree_module, "MOST", 5000)
    with pytest.raises(InputError, match="contains more than 5000 paths"):
        desk.lock(Git("demo", "github:demo/top", nested.hostile((b"40000", b"d", tree))))
    assert len(read) <= 2 + 13


def test_a_tree_that_contains_itself_twice_many_times(demo: Repo, desk: Desk) -> None:
    """Forty trees are 2**40 folders: each is read once."""
    tree = demo.object("tree", b"100644 f\0" + bytes.fromhex(demo.object("blob", b"x")))
    for _ in range(40):
        tree = demo.object("tree", b"".join(b"40000 %b\0" % name + bytes.fromhex(tree) for name in (b"a", b"b")))
    with ends_within(30), pytest.raises(InputError, match="contains more than 2000000 paths") as caught:
        desk.lock(Git("demo", ORIGIN, demo.hostile((b"40000", b"d", tree))))
    assert caught.value.hint == tree_module.REVIEW


def test_an_object_that_git_would_unpack_to_gigabytes(tmp_path: Path) -> None:
    """A pack of 16 KB, as a server sends it: a blob of 16 MiB of zeros, and one that has them 200 times."""
    size, count = (1 << 24) - 1, 200
    base = hashlib.sha1(b"blob %d\0" % size + bytes(size)).digest()
    copies = bytes([0xF0, 0xFF, 0xFF, 0xFF]) * count  # of `size` bytes from the start (gitformat-pack(5))
    change = length(size) + length(size * count) + copies
    pack = b"PACK" + struct.pack(">II", 2, 2) + entry(3, size) + zlib.compress(bytes(size))
    pack += entry(7, len(change)) + base + zlib.compress(change)
    run_git(None, "init", "--quiet", "--bare", "--template=", str(tmp_path))
    done = run_git(tmp_path, "index-pack", "--stdin", content=pack + hashlib.sha1(pack).digest())
    assert done.returncode and b"over limit" in done.stderr


def entry(kind: int, size: int) -> bytes:
    """Return the header of an object in a pack."""
    return bytes([(0x80 if size >> 4 else 0) | kind << 4 | size & 15]) + (length(size >> 4) if size >> 4 else b"")


def length(size: int) -> bytes:
    """Return a number, seven bits in each byte."""
    more, rest = size >> 7, size & 127
    return bytes([128 | rest]) + length(more) if more else bytes([rest])


@pytest.mark.parametrize("head", [b"tree \xff\xff\n", b"tree refs/heads/main^{tree}\n", b"tree " + b"1" * 39 + b"\n"])
def test_a_commit_without_the_hash_of_a_tree(demo: Repo, desk: Desk, head: bytes) -> None:
    commit = demo.object("commit", head + b"author a <a> 1 +0000\ncommitter a <a> 1 +0000\n\nx\n")
    with pytest.raises(InputError, match="is not a commit"):
        desk.lock(Git("demo", ORIGIN, commit))


@pytest.mark.parametrize("name", ["s\nhint: x", "s\u202ex"])
@pytest.mark.parametrize("address", ["../demo", "../absent"])
def test_a_submodule_whose_name_deceives(demo: Repo, desk: Desk, name: str, address: str) -> None:
    """It is neither locked nor left out, whether its repository is available or not; no line begins with its name."""
    commit = submodules(demo, demo.head, name.encode(), address=address)
    with pytest.raises(
        InputError, match=r"the submodule s\\(n|u202e).* has a name with the control character"
    ) as caught:
        desk.lock(Git("demo", ORIGIN, commit))
    assert caught.value.hint == tree_module.REVIEW and name not in caught.value.message
    with pytest.raises(InputError, match="does not fetch") as caught:
        desk.lock(Git("other", ORIGIN, commit, submodules=False))
    assert name not in caught.value.message and name not in caught.value.hint


def test_an_error_states_a_submodule_of_an_edited_lock_on_one_line(demo: Repo, desk: Desk, tmp_path: Path) -> None:
    found = desk.lock(git_source(demo))
    edited = replace(found, submodules={"s\nhint: x": f"github:demo/absent@{'1' * 40}"})
    other = Desk(tmp_path / "other", github=tmp_path / "work")
    with pytest.raises(InputError, match=r"the submodule s\\nhint: x of"):
        other.obtain(edited)


def test_git_has_limited_memory() -> None:
    """A server's list of references may be endless, and git has all of it in memory."""
    done = run_git(None, "-c", "alias.limit=!ulimit -d", "limit")
    assert int(done.stdout) << 10 == LIMITS.program_memory
