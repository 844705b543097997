"""Commits that are not available, and repositories with wrong content."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.core.errors import InputError
from envbuild.spec.recipe import Git
from tests.support.git_server import Repo, Served, git
from tests.support.git_site import FILES, MARKS, ORIGIN, Desk, git_source, state
from tests.support.git_site import demo as demo  # a fixture
from tests.support.git_site import desk as desk  # a fixture
from tests.support.git_site import server as server  # a fixture

pytestmark = MARKS


def test_a_commit_that_no_repository_has(demo: Repo, desk: Desk, tmp_path: Path, server: Served) -> None:
    demo.bare(tmp_path / "served/demo/demo.git")
    desk.map("github:", tmp_path / "work", server.url)
    with pytest.raises(InputError) as caught:
        desk.lock(Git("demo", ORIGIN, "1" * 40, "v1"))
    assert f"{demo.path}/.git: it does not have this commit" in caught.value.message
    assert f"{server.url}/demo/demo: it does not have this commit" in caught.value.message


def test_a_damaged_git_link_file_is_refused(demo: Repo, desk: Desk, tmp_path: Path) -> None:
    for text in ("gitdir: .", "gitdir: /nowhere", ""):
        (tmp_path / "work/other").mkdir(exist_ok=True)
        (tmp_path / "work/other/.git").write_text(text)
        with pytest.raises(InputError, match="contains no git repository"):
            desk.lock(Git("x", "github:other", demo.head))


def test_partial_clone(demo: Repo, tmp_path: Path) -> None:
    git(demo.path, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "--quiet", "--bare", "--filter=blob:none", demo.path.as_uri(), str(tmp_path / "p.git"))
    before = state(tmp_path / "p.git")
    with pytest.raises(InputError, match=r"p\.git: (it lacks \d+ of the commit's|git cannot read it)"):
        Desk(tmp_path / "s").map(ORIGIN, tmp_path / "p.git").lock(git_source(demo))
    assert state(tmp_path / "p.git") == before


@pytest.mark.slow_unit
@pytest.mark.parametrize(
    ("names", "why"),
    [
        ([b"../x"], "leave its folder"),
        ([b"/etc/x"], "leave its folder"),
        ([b".."], "leave its folder"),
        ([b".GIT"], "control git"),
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
    with pytest.raises(InputError, match="without a valid target"):
        desk.lock(Git("demo", ORIGIN, demo.hostile((b"120000", b"a", demo.object("blob", b"x\0y")))))
    with pytest.raises(InputError, match="unknown kind"):
        desk.lock(Git("demo", ORIGIN, demo.hostile((b"60000", b"a", link))))


def test_mirror_with_other_content_under_a_hash(demo: Repo, desk: Desk) -> None:
    def loose(sha: str) -> Path:
        return demo.path / ".git/objects" / sha[:2] / sha[2:]

    right, wrong = demo.object("blob", FILES["README"]), demo.object("blob", b"jello\n")
    loose(right).chmod(0o644)
    loose(right).write_bytes(loose(wrong).read_bytes())
    with pytest.raises(InputError, match=f"the blob {right} has other content"):
        desk.lock(git_source(demo))


def test_objects_that_are_too_long(tmp_path: Path, desk: Desk) -> None:
    """A repository of a few megabytes may have one of gigabytes."""
    for number, (name, size) in enumerate(((".gitmodules", (1 << 20) + 1), ("link", 5000))):
        repo = Repo.make(tmp_path / f"work/long{number}")
        blob = repo.object("blob", b"#" * size)
        commit = repo.hostile((b"120000" if name == "link" else b"100644", name.encode(), blob))
        with pytest.raises(InputError, match=f"{size} bytes"):
            desk.lock(Git("x", f"github:long{number}", commit))
