"""The lock as a step of `make`: read when it is current, made when there is none, updated on request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import LockError
from envbuild.core.store.store import Store
from envbuild.lock import update
from envbuild.lock.lockfile import Lock, read_lock, write_lock
from envbuild.lock.matrix_check import known_packages
from envbuild.lock.resolve import resolve_in
from envbuild.matrix.facts.waiver import Waiver
from envbuild.net.site import Site
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.project import Project
from envbuild.spec.workspace import Workspace

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
LOCK = replace(read_lock(ROOT / "images" / "cpu-ucx.lock"), image="app")
Step = Callable[..., Lock]


class Place:
    """A project with one image, and the requests to the steps of locking."""

    def __init__(self, folder: Path) -> None:
        self.path, self.made, self.checked = folder / "app.lock", LOCK, 0
        self.requests: list[dict[str, Any]] = []
        self.reporter = SilentReporter()
        project = SimpleNamespace(lock_path=lambda path: self.path, new_lock_path=lambda path: self.path)
        spec = SimpleNamespace(path=folder / "app.yaml", name="app", base="debian:13", where={}, dev=())
        self.resolution: Any = SimpleNamespace(spec=spec, env=None, waivers=())
        store = Store.open(folder / "store")
        site = Site(folder / "store", use_host=False)
        self.workspace: Any = Workspace(project, site, store, self.reporter)  # type: ignore[arg-type]

    def make(self, *_: Any, **options: Any) -> Lock:
        self.requests.append(options)
        return self.made

    def check(self, *_: Any) -> None:
        self.checked += 1


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    found = Place(tmp_path)
    request = SimpleNamespace(is_answered_by=lambda inputs: inputs == LOCK.inputs, digest=lambda: LOCK.inputs)
    monkeypatch.setattr(update, "lock_request", lambda resolution: request)
    monkeypatch.setattr("envbuild.lock.make_lock.make_lock", found.make)
    monkeypatch.setattr("envbuild.lock.commit_origin.commit_hints", lambda resolution: {})
    monkeypatch.setattr("envbuild.lock.matrix_check.record_matrix_versions", lambda resolution, lock, workspace: lock)
    monkeypatch.setattr("envbuild.lock.matrix_check.check_lock", found.check)
    monkeypatch.setattr("envbuild.lock.matrix_check.known_packages", lambda resolution, workspace: {"torch": "2.15.0"})
    return found


def test_a_missing_lock_is_made_and_a_current_one_is_checked(place: Place) -> None:
    assert update.ensure_lock(place.resolution, place.workspace) == LOCK
    assert read_lock(place.path) == LOCK and len(place.requests) == 1 and place.checked == 0
    assert place.requests[0]["newest"] == {"torch": "2.15.0"}
    assert update.ensure_lock(place.resolution, place.workspace) == LOCK
    assert len(place.requests) == 1 and place.checked == 1


def test_an_outdated_lock_is_renewed_where_a_command_requests_that(place: Place) -> None:
    assert update.renew_lock(place.resolution, place.workspace) == LOCK and len(place.requests) == 1
    assert update.renew_lock(place.resolution, place.workspace) == LOCK
    assert len(place.requests) == 1 and place.checked == 1
    write_lock(replace(LOCK, inputs="0" * 64), place.path)
    assert update.renew_lock(place.resolution, place.workspace) == LOCK == read_lock(place.path)
    assert len(place.requests) == 2 and any("app.lock is outdated" in line for line in place.reporter.lines)
    place.path.write_text("damaged")
    assert update.renew_lock(place.resolution, place.workspace) == LOCK and len(place.requests) == 3


def test_a_lock_of_other_inputs_is_outdated(place: Place) -> None:
    write_lock(replace(LOCK, inputs="0" * 64), place.path)
    with pytest.raises(LockError) as caught:
        update.ensure_lock(place.resolution, place.workspace)
    assert (caught.value.hint, caught.value.where) == ("envbuild lock app", str(place.path))
    place.path.unlink()
    with pytest.raises(LockError) as caught:
        update.current_lock(place.resolution, place.workspace)
    assert caught.value.hint == "envbuild lock app"


def test_versions_of_the_older_lock_are_preferred_unless_it_is_damaged_or_all_is_fresh(place: Place) -> None:
    write_lock(LOCK, place.path)
    update.update_lock(place.resolution, place.workspace, upgrade=frozenset({"ucx"}), refresh=True)
    update.update_lock(place.resolution, place.workspace, fresh=True)
    assert place.reporter.lines[0] == "app: the lock is unchanged"
    place.path.write_text("schema: 1\n")
    place.reporter.lines.clear()
    update.update_lock(place.resolution, place.workspace)
    assert [request["previous"] for request in place.requests] == [LOCK, None, None]
    assert [(request["upgrade"], request["refresh"]) for request in place.requests] == [
        (frozenset({"ucx"}), True),
        (frozenset(), True),
        (frozenset(), False),
    ]
    assert place.reporter.lines[0].endswith("its versions are ignored")
    assert read_lock(place.path) == LOCK


def test_an_unchanged_lock_is_not_written(place: Place) -> None:
    write_lock(LOCK, place.path)
    before = place.path.stat().st_mtime_ns, place.path.stat().st_ino
    update.update_lock(place.resolution, place.workspace)
    assert (place.path.stat().st_mtime_ns, place.path.stat().st_ino) == before
    place.made = replace(LOCK, epoch=LOCK.epoch + 1)
    update.update_lock(place.resolution, place.workspace)
    assert read_lock(place.path).epoch == LOCK.epoch + 1


def test_waivers_of_the_image_are_part_of_its_lock(place: Place) -> None:
    place.resolution.waivers = (SimpleNamespace(fact="torch.sm", reason="tried it"),)
    update.update_lock(place.resolution, place.workspace)
    assert place.requests[0]["waivers"] == ({"fact": "torch.sm", "reason": "tried it"},)


def test_an_image_without_a_lock_has_a_draft_that_shows_its_plan_only() -> None:
    project = Project.find(ROOT)
    resolution = resolve_in(load_image_spec("cpu-ucx", project), project)
    draft = update.draft_lock(resolution)
    assert (draft.image, draft.inputs) == ("cpu-ucx", LOCK.inputs)
    assert draft != LOCK and draft.units.keys() == LOCK.units.keys()


def test_a_waiver_of_unknown_versions_removes_the_bounds_of_packages() -> None:
    project = SimpleNamespace(facts=Project(ROOT).facts)
    workspace: Any = SimpleNamespace(project=project)
    bounded: Any = SimpleNamespace(waivers=())
    waived: Any = SimpleNamespace(waivers=(Waiver("unheard", "tried it"),))
    assert "transformers" in known_packages(bounded, workspace)
    assert known_packages(waived, workspace) == {}
