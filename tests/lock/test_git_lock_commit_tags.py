"""A tag beside a commit: moved, missing, or in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.core.console import RecordingReporter
from envbuild.core.errors import InputError
from envbuild.lock.git.commit_hint import CommitHint
from envbuild.lock.git.lock_commit import lock_commit
from envbuild.lock.sources import lock_sources
from envbuild.net.download import Transfer
from envbuild.net.transport import Transport
from envbuild.spec.recipe import Git
from tests.support.git_server import Repo, Served, git
from tests.support.git_site import MARKS, ORIGIN, Desk, git_source
from tests.support.git_site import demo as demo  # a fixture
from tests.support.git_site import desk as desk  # a fixture
from tests.support.git_site import server as server  # a fixture

pytestmark = MARKS


@pytest.mark.slow_unit
def test_tag_that_was_moved(demo: Repo, desk: Desk, tmp_path: Path, server: Served) -> None:
    wanted = git_source(demo, tag="v1")
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
        transport = Transport(desk.site.network())
        with pytest.raises(InputError) as caught:
            lock_sources(
                desk.site, transport, Transfer(transport, desk.store), desk.store, desk.reporter, [], [wanted], {},
                commit_hints={wanted.file: CommitHint("the commit in recipes/demo.py:3")},
            )  # fmt: skip
        assert caught.value.hint.endswith("review what changed, then change the commit in recipes/demo.py:3")


@pytest.mark.slow_unit
def test_place_that_has_other_tags_only(demo: Repo, tmp_path: Path, server: Served) -> None:
    """The commit is locked, and a warning reports that upstream may have deleted the tag."""
    demo.bare(tmp_path / "served/demo/demo.git")
    for number, (place, address) in enumerate(((tmp_path / "work", tmp_path / "work/demo"), (server.url, server.url))):
        desk = Desk(tmp_path / f"s{number}", github=place)
        assert desk.lock(git_source(demo, tag="v9")) == desk.lock(git_source(demo))
        (line,) = desk.reporter.lines
        assert line.startswith(f"{ORIGIN} has no tag v9 at {address}") and f"{demo.head[:12]} is locked" in line
        recorder = RecordingReporter(desk.reporter)
        lock_commit(desk.site, Transport(desk.site.network()), desk.store, recorder, git_source(demo, tag="v9"), {})
        assert recorder.take_warnings() == [line] and recorder.take_warnings() == []
        assert desk.reporter.lines == [line, line]


@pytest.mark.slow_unit
def test_place_without_any_tags(demo: Repo, tmp_path: Path, server: Served) -> None:
    """A mirror may be shallow: the commit is what counts."""
    git(demo.path, "tag", "--delete", "v1")
    demo.bare(tmp_path / "served/demo/demo.git")
    git(demo.path, "clone", "--quiet", "--depth=1", f"file://{demo.path}", str(tmp_path / "shallow/demo"))
    for number, place in enumerate((tmp_path / "work", tmp_path / "shallow", server.url)):
        desk = Desk(tmp_path / f"s{number}", github=place)
        assert desk.lock(git_source(demo, tag="v1")) == desk.lock(git_source(demo))
        assert not desk.reporter.lines


def test_tag_object_in_place_of_a_commit(demo: Repo, desk: Desk) -> None:
    with pytest.raises(InputError, match="is a tag there, not a commit"):
        desk.lock(Git("demo", ORIGIN, git(demo.path, "rev-parse", "v1")))
