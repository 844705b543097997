"""Small repositories that would take all time, memory or disk; names of submodules that would deceive a reader."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.errors import InputError
from envbuild.lock.git import lock_commit, source_limits
from envbuild.spec.recipe import Git
from tests.support.git_server import Repo
from tests.support.git_site import MARKS, ORIGIN, Desk, git_source
from tests.support.git_site import demo as demo  # a fixture
from tests.support.git_site import desk as desk  # a fixture
from tests.support.git_site import nested as nested  # a fixture

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
    assert caught.value.hint == lock_commit.REVIEW and name not in caught.value.message
    with pytest.raises(InputError, match="does not fetch") as caught:
        desk.lock(Git("other", ORIGIN, commit, submodules=False))
    assert name not in caught.value.message and name not in caught.value.hint


def test_an_error_states_a_submodule_of_an_edited_lock_on_one_line(demo: Repo, desk: Desk, tmp_path: Path) -> None:
    found = desk.lock(git_source(demo))
    edited = replace(found, submodules={"s\nhint: x": f"github:demo/absent@{'1' * 40}"})
    other = Desk(tmp_path / "other", github=tmp_path / "work")
    with pytest.raises(InputError, match=r"the submodule s\\nhint: x of"):
        other.obtain(edited)
