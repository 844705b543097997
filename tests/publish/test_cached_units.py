"""Units of one store that another store takes from a cache: a registry or a folder."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from envbuild.build.cache import fill_store
from envbuild.build.engines.base import BuildOptions
from envbuild.core.console import SilentReporter
from envbuild.core.errors import ConflictError, EngineError, LockError, SpecError
from envbuild.core.store.build_records import PACK_VERSION
from envbuild.core.store.store import Store
from envbuild.export.built_image import ImageRecord
from envbuild.make import Options
from envbuild.publish import cached_units, pack_blobs
from envbuild.publish.make_and_share import make_and_share
from tests.support.command import ROOT
from tests.support.foreign_images import workspace
from tests.support.local_registry import Server
from tests.support.push_proxy import pushing
from tests.support.small_plan import KEYS, small_plan
from tests.support.unit_caches import IMAGE, UNITS, age_packs, built_store, fill, opened, send, setting, warnings

pytestmark = pytest.mark.registry


Place = Callable[[], "str | Path"]


@pytest.fixture(params=["folder", "registry"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    """Return an empty cache of each kind."""
    if request.param == "folder":
        return tmp_path / "cache"
    server: Server = request.getfixturevalue("registry")
    return f"{server.host}/team/cache"


def test_units_are_as_if_they_had_been_built_here(tmp_path: Path, place: str | Path) -> None:
    store, records = built_store(tmp_path / "a")
    assert f"sent to the cache {place}" in send(store, records, place)[-1]
    other = Store.open(tmp_path / "b")
    taken, lines = fill(other, place)
    assert sorted(taken) == sorted(IMAGE) and not warnings(lines)
    for record in records:
        found = other.unit(record.key)
        if record.unit not in IMAGE:
            assert found is None  # nothing needs it
            continue
        assert found and found.layer and record.layer
        assert (found.layer.diff_id, found.layer.size, found.seconds) == (record.layer.diff_id, record.layer.size, 1.5)
        assert found.source.startswith(f"{place}@sha256:") and found.caches == (str(place),)
        assert found.box == {"seccomp": True}
    packs = {path.name: path.read_bytes() for path in (tmp_path / "b/packs").glob(f"*.v{PACK_VERSION}")}
    assert packs and all((store.root / "packs" / name).read_bytes() == content for name, content in packs.items())
    assert fill(other, place) == ({}, [])  # nothing is requested again


def test_layers_whose_packs_have_the_format_of_an_earlier_release_are_taken_again(tmp_path: Path) -> None:
    """Such a layer has no other form in this store."""
    cache = tmp_path / "cache"
    store, records = built_store(tmp_path / "a")
    send(store, records, cache)
    other = Store.open(tmp_path / "b")
    fill(other, cache)
    before = {path.name for path in (tmp_path / "b/packs").iterdir()}
    age_packs(tmp_path / "b/packs")
    assert other.unit(KEYS["base"]) is None
    taken, lines = fill(other, cache)
    assert sorted(taken) == sorted(IMAGE) and not warnings(lines)
    assert before < {path.name for path in (tmp_path / "b/packs").iterdir()}  # the others are of use to their release


def test_what_a_missing_unit_needs_is_taken_too(tmp_path: Path, place: str | Path) -> None:
    store, records = built_store(tmp_path / "a")
    send(store, [record for record in records if record.unit not in ("glue", "venv", "ucx")], place)
    other = Store.open(tmp_path / "b")
    taken, _ = fill(other, place)
    assert sorted(taken) == sorted(KEYS.keys() - {"glue", "venv", "ucx"})
    apex = other.unit(KEYS["apex"])
    assert apex and other.has_blob(apex.wheels[0][1])


def test_a_miss_is_one_request(tmp_path: Path, registry: Server) -> None:
    with pushing(registry.host) as proxy:
        name = f"{proxy.url.removeprefix('http://')}/team/cache"
        assert fill(Store.open(tmp_path / "b"), name)[0] == {}
        assert len(proxy.asked) == UNITS and {method for method, _, _ in proxy.asked} == {"HEAD"}
        store, records = built_store(tmp_path / "a")
        send(store, records, name)
        proxy.asked.clear()
        assert send(store, records, name) == []  # a known unit: one request, too
        assert len(proxy.asked) == UNITS and {method for method, _, _ in proxy.asked} == {"HEAD"}


def test_caches_are_tried_in_their_order(tmp_path: Path, registry: Server) -> None:
    store, records = built_store(tmp_path / "a")
    send(store, records[:2], tmp_path / "near")
    send(store, records, f"{registry.host}/far")
    taken, _ = fill(Store.open(tmp_path / "b"), tmp_path / "near", f"{registry.host}/far")
    near = {name for name, record in taken.items() if record.caches == (str(tmp_path / "near"),)}
    assert near == {"base", "debian"} and len(taken) == len(IMAGE)


def test_a_unit_of_a_cache_that_a_build_does_not_use_is_not_used(tmp_path: Path, place: str | Path) -> None:
    store, records = built_store(tmp_path / "a")
    send(store, records, place)
    other = Store.open(tmp_path / "b")
    fill(other, place)
    assert BuildOptions().find_unit(other, KEYS["base"], "layer") is None
    assert BuildOptions(caches=frozenset((str(place),))).find_unit(other, KEYS["base"], "layer")
    assert BuildOptions().find_unit(store, KEYS["base"], "layer")


def test_a_cache_that_does_not_answer_is_reported_once(tmp_path: Path, registry: Server) -> None:
    store, records = built_store(tmp_path / "a")
    taken, lines = fill(Store.open(tmp_path / "b"), "127.0.0.1:1/team/cache")
    assert taken == {} and len(lines) == 1 and "connection refused" in lines[0]
    assert len(send(store, records, "127.0.0.1:1/team/cache")) == 1
    (tmp_path / "file").touch()
    assert len(warnings(fill(Store.open(tmp_path / "c"), tmp_path / "file")[1])) == 1
    assert fill(Store.open(tmp_path / "d"), tmp_path / "none") == ({}, [])  # nothing was sent yet


def test_a_registry_that_may_not_be_written_is_reported(tmp_path: Path, registry: Server) -> None:
    store, records = built_store(tmp_path / "a")
    with pushing(registry.host) as proxy:
        proxy.most = 100  # of a body: 413
        lines = send(store, records, f"{proxy.url.removeprefix('http://')}/team/cache")
    assert len(lines) == 1 and "it cannot be written" in lines[0]


def raise_it(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("send_units_too", [True, False])
def test_a_cache_that_is_new_gets_the_units_of_an_image_that_is_up_to_date(
    tmp_path: Path, place: str | Path, monkeypatch: pytest.MonkeyPatch, send_units_too: bool
) -> None:
    (store, _), reporter = built_store(tmp_path / "a"), SilentReporter()
    resolution = SimpleNamespace(spec=SimpleNamespace(base=""))
    monkeypatch.setattr("envbuild.lock.resolve.resolve_image", lambda *_: resolution)
    monkeypatch.setattr("envbuild.lock.update.current_lock", lambda *_: SimpleNamespace(base_image=None))
    monkeypatch.setattr("envbuild.build.plan.planner.make_plan", lambda resolution, lock: small_plan())
    done = ImageRecord("x", "", "", "", "embedded", (), "", (), (), (), 0.0, up_to_date=True)
    at = replace(workspace(tmp_path / "w"), store=store, reporter=reporter)
    changed = replace(done, sha256="of a recipe that was edited")
    for known in (None, changed):
        monkeypatch.setattr("envbuild.publish.make_and_share.read_image_record", lambda *_, known=known: known)
        make_and_share(lambda *_: done, "x", at, Options(caches=opened(reporter, setting(place, write=True))))
        assert fill(Store.open(tmp_path / "c"), place)[0] == {}
        assert reporter.lines[-1] == "no unit of x is sent to a cache: it changed while it was made"
    monkeypatch.setattr("envbuild.publish.make_and_share.read_image_record", lambda *_: done)
    for error in (SpecError("half edited"), ConflictError("no such version"), LockError("x.lock is outdated")):
        monkeypatch.setattr("envbuild.lock.update.current_lock", lambda *_, error=error: raise_it(error))
        assert make_and_share(lambda *_: done, "x", at, Options(caches=opened(reporter, setting(place, write=True))))
        assert reporter.lines[-1] == "no unit of x is sent to a cache: it changed while it was made"
    monkeypatch.setattr("envbuild.lock.update.current_lock", lambda *_: SimpleNamespace(base_image=None))
    for _ in range(2):
        caches = opened(reporter, setting(place, write=True))
        made = make_and_share(lambda *_: done, "x", at, Options(caches=caches), send=send_units_too)
        assert made is done
    sent = [line for line in reporter.lines if "sent to the cache" in line]
    found, _ = fill(Store.open(tmp_path / "b"), place)
    assert (len(sent), set(IMAGE) <= set(found)) == ((1, True) if send_units_too else (0, False))


def test_large_packs_travel_in_parts(tmp_path: Path, place: str | Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_blobs, "LARGE", 40_000)
    monkeypatch.setattr(pack_blobs, "PART", 20_000)
    monkeypatch.setattr(cached_units, "PART", 20_000)
    store, records = built_store(tmp_path / "a")
    send(store, records, place)
    taken, lines = fill(Store.open(tmp_path / "b"), place)
    assert sorted(taken) == sorted(IMAGE) and not warnings(lines)


def test_two_builders_at_once(tmp_path: Path, place: str | Path) -> None:
    context = multiprocessing.get_context("fork")
    stores = [built_store(tmp_path / name) for name in "ab"]
    writers = [context.Process(target=send, args=(*found, place)) for found in stores]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert sorted(fill(Store.open(tmp_path / "c"), place)[0]) == sorted(IMAGE)


def test_a_full_store_is_an_error(tmp_path: Path, place: str | Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, records = built_store(tmp_path / "a")
    send(store, records, place)
    other = Store.open(tmp_path / "b")
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result((4096,) * 2 + (0,) * 8))
    with pytest.raises(EngineError, match="is full"):
        fill(other, place)


def test_a_killed_search_leaves_a_store_that_works(tmp_path: Path, place: str | Path) -> None:
    store, records = built_store(tmp_path / "a")
    send(store, records, place)
    argument = f"Path({str(place)!r})" if isinstance(place, Path) else repr(place)
    code = (
        "import sys; from pathlib import Path; from envbuild.core.store.store import Store;"
        f"from tests.support.unit_caches import fill; s = Store.open(Path({str(tmp_path / 'b')!r}));"
        f"print('ready', flush=True); fill(s, {argument})"
    )
    dice = random.Random(1)
    for _ in range(int(os.environ.get("ENVBUILD_ATTACK_N", "3"))):
        process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(dice.uniform(0, 0.4))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    other = Store.open(tmp_path / "b")
    fill(other, place)
    assert all(other.unit(KEYS[name]) for name in IMAGE)
    for record in records:
        found = other.unit(record.key)
        assert found is None or (found.layer and record.layer and found.layer.diff_id == record.layer.diff_id)


def test_a_stopped_search_ends_its_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, records = built_store(tmp_path / "a")
    send(store, records, tmp_path / "cache")

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fill_store, "take_unit", fail)
    with pytest.raises(KeyboardInterrupt):
        fill(Store.open(tmp_path / "b"), tmp_path / "cache")
