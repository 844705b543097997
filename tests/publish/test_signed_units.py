"""Units of a cache with signatures: those of a listed key are taken, all others are built."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envbuild.build.cache.fill_store import fill_from_caches
from envbuild.build.cache.open_cache import open_caches
from envbuild.build.cache.unit_document import SIGNATURE
from envbuild.build.engines.base import BuildOptions
from envbuild.core.console import SilentReporter
from envbuild.core.errors import SignatureError
from envbuild.core.signing.passphrase import VARIABLE
from envbuild.core.store.store import Store, UnitRecord
from envbuild.export.built_image import ImageRecord
from envbuild.make import Options, cache_names
from envbuild.net.site import Site
from envbuild.net.unit_caches import UnitCache
from envbuild.publish.cached_units import send_units
from envbuild.publish.make_and_share import make_and_share
from tests.support.foreign_images import workspace
from tests.support.local_registry import Server, sha256
from tests.support.signing import PASSPHRASE, new_key
from tests.support.small_plan import KEYS, small_plan
from tests.support.unit_caches import IMAGE, UNITS, built_store, warnings

pytestmark = pytest.mark.registry


@pytest.fixture(autouse=True)
def passphrase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, PASSPHRASE)


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the files of a key."""
    path = tmp_path_factory.mktemp("team") / "team.key"
    return path, new_key(path)[1]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    path = tmp_path_factory.mktemp("other") / "other.key"
    return path, new_key(path)[1]


@pytest.fixture(params=["folder", "registry"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> UnitCache:
    """Return an empty cache of each kind, whose units need no signature."""
    if request.param == "folder":
        return UnitCache(str(tmp_path / "cache"), tmp_path / "cache")
    server: Server = request.getfixturevalue("registry")
    return UnitCache(f"{server.host}/team/cache")


def send(store: Store, records: list[UnitRecord], cache: UnitCache, key: Path | None = None, *keys: Path) -> list[str]:
    """Send units to a cache, signed with the file `key`; keys: those that it must be signed by."""
    reporter = SilentReporter()
    setting = replace(cache, write=True, sign=key, keys=keys)
    send_units(records, open_caches(Site(Path("/"), caches=(setting,)), reporter), store, reporter)
    return reporter.lines


def fill(store: Store, cache: UnitCache, *keys: Path) -> tuple[dict[str, UnitRecord], list[str]]:
    """Take units from a cache that must be signed by one of the files `keys`."""
    reporter = SilentReporter()
    setting = replace(cache, keys=keys)
    caches = open_caches(Site(Path("/"), caches=(setting,)), reporter)
    options = replace(BuildOptions(), caches=frozenset(setting.names))
    return fill_from_caches(small_plan(), store, caches, reporter, options), reporter.lines


def test_signed_units_are_taken(
    tmp_path: Path, place: UnitCache, team: tuple[Path, Path], other: tuple[Path, Path]
) -> None:
    store, records = built_store(tmp_path / "a")
    assert f"{UNITS} units" in send(store, records, place, *team)[-1]
    assert send(store, records, place, *team) == [], "they are there, with a good signature"
    taken, lines = fill(Store.open(tmp_path / "b"), place, other[1], team[1])
    assert sorted(taken) == sorted(IMAGE) and not warnings(lines)
    signed = replace(place, keys=(team[1],))
    assert {record.caches for record in taken.values()} == {signed.names}
    assert all("#" not in record.source for record in taken.values())
    assert fill(Store.open(tmp_path / "c"), place)[0].keys() == set(IMAGE), "a site that writes unsigned: true"


def test_units_of_another_key_and_unsigned_ones_are_built(
    tmp_path: Path, place: UnitCache, team: tuple[Path, Path], other: tuple[Path, Path]
) -> None:
    store, records = built_store(tmp_path / "a")
    send(store, records, place)
    taken, lines = fill(Store.open(tmp_path / "b"), place, team[1])
    assert not taken and len(warnings(lines)) >= len(IMAGE)
    assert all("it is not signed, and the site requires a signature" in line for line in warnings(lines))
    assert f"{UNITS} units" in send(store, records, place, *team)[-1], "they are replaced by signed ones"
    taken, lines = fill(Store.open(tmp_path / "c"), place, other[1])
    assert not taken and all("no key of the site made its signature" in line for line in warnings(lines))


def swapped(cache: Path, one: str, two: str) -> None:
    """Give a unit in a folder the signature of another one."""
    manifests = [json.loads((cache / "units" / KEYS[name]).read_bytes()) for name in (one, two)]
    (other,) = (layer for layer in manifests[1]["layers"] if layer["mediaType"] == SIGNATURE)
    layers = [layer for layer in manifests[0]["layers"] if layer["mediaType"] != SIGNATURE]
    manifests[0]["layers"] = [*layers, other]
    (cache / "units" / KEYS[one]).write_text(json.dumps(manifests[0]))


def changed_document(cache: Path, name: str) -> None:
    """Change the document of a unit: its digest is another one, and the signature remains."""
    path = cache / "units" / KEYS[name]
    manifest = json.loads(path.read_bytes())
    document = json.loads((cache / "blobs/sha256" / manifest["config"]["digest"][7:]).read_bytes())
    content = json.dumps({**document, "seconds": 9.0}).encode()
    (cache / "blobs/sha256" / sha256(content)).write_bytes(content)
    manifest["config"] |= {"digest": f"sha256:{sha256(content)}", "size": len(content)}
    path.write_text(json.dumps(manifest))


def changed_signature(cache: Path, name: str, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change the envelope of a unit."""
    path = cache / "units" / KEYS[name]
    manifest = json.loads(path.read_bytes())
    for layer in manifest["layers"]:
        if layer["mediaType"] == SIGNATURE:
            value = json.loads((cache / "blobs/sha256" / layer["digest"][7:]).read_bytes())
            edit(value)
            content = json.dumps(value).encode()
            (cache / "blobs/sha256" / sha256(content)).write_bytes(content)
            layer |= {"digest": f"sha256:{sha256(content)}", "size": len(content)}
    path.write_text(json.dumps(manifest))


def removed_signature(cache: Path, name: str) -> None:
    manifest = json.loads((cache / "units" / KEYS[name]).read_bytes())
    (layer,) = (layer for layer in manifest["layers"] if layer["mediaType"] == SIGNATURE)
    (cache / "blobs/sha256" / layer["digest"][7:]).unlink()


def other_payload(value: dict[str, Any]) -> None:
    payload = base64.b64decode(value["payload"]).replace(b"unit:v1", b"unit:v2")
    value["payload"] = base64.b64encode(payload).decode()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda cache: swapped(cache, "base", "venv"), "its signature belongs to another unit"),
        (lambda cache: changed_document(cache, "base"), "its signature belongs to another unit"),
        (lambda cache: removed_signature(cache, "base"), "its signature is missing"),
        (lambda cache: changed_signature(cache, "base", other_payload), "no key of the site made its signature"),
        (lambda cache: changed_signature(cache, "base", lambda value: value.clear()), "its signature is malformed"),
        (
            lambda cache: changed_signature(cache, "base", lambda value: value.update(x="y" * (1 << 17))),
            "its signature is malformed: it is too large",
        ),
    ],
)
def test_a_wrong_signature_is_refused_and_the_unit_is_built(
    tmp_path: Path, team: tuple[Path, Path], change: Callable[[Path], object], message: str
) -> None:
    place = UnitCache(str(tmp_path / "cache"), tmp_path / "cache")
    store, records = built_store(tmp_path / "a")
    send(store, records, place, *team)
    change(tmp_path / "cache")
    taken, lines = fill(Store.open(tmp_path / "b"), place, team[1])
    assert "base" not in taken and sorted(taken) == sorted({*IMAGE, *taken} - {"base"})
    (warning,) = warnings(lines)
    assert message in warning and "the unit base of the cache" in warning


def test_units_of_a_key_are_not_used_after_the_site_has_removed_it(
    tmp_path: Path, place: UnitCache, team: tuple[Path, Path], other: tuple[Path, Path]
) -> None:
    store, records = built_store(tmp_path / "a")
    send(store, records, place, *team)
    home = Store.open(tmp_path / "b")
    fill(home, place, team[1])
    record = home.unit(KEYS["base"])

    def usable(*keys: Path) -> bool:
        site = Site(Path("/"), caches=(replace(place, keys=keys),))
        workspace: Any = type("Workspace", (), {"site": site})
        return bool(record) and cache_names(Options(), workspace).issuperset(record.caches)  # type: ignore[union-attr]

    assert usable(team[1]) and usable(other[1], team[1])
    assert not usable(other[1]) and not usable()


def test_what_was_built_on_unsigned_units_is_not_signed(
    tmp_path: Path, place: UnitCache, team: tuple[Path, Path]
) -> None:
    store, records = built_store(tmp_path / "a")
    base = [record for record in records if record.key == KEYS["base"]]
    rest = [record for record in records if record.key != KEYS["base"]]
    on_unsigned = [replace(record, caches=("r.example/unsigned",)) for record in rest]
    lines = send(store, [*base, *on_unsigned], place, *team)
    assert f"{len(rest)} units not signed for the cache {place.at}" in lines[0] and "1 unit, " in lines[-1]
    assert list(fill(Store.open(tmp_path / "b"), place, team[1])[0]) == ["base"]
    signed = replace(place, keys=(team[1],)).names
    on_signed = [replace(record, caches=signed) for record in rest]
    assert f"{len(rest)} units" in send(store, on_signed, place, *team)[-1]


def test_units_on_an_image_of_unsigned_units_are_not_signed(
    tmp_path: Path, place: UnitCache, team: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image of the project below is an input of their lock: its caches are in its own record."""
    (store, records), reporter = built_store(tmp_path / "a"), SilentReporter()
    resolution = SimpleNamespace(spec=SimpleNamespace(base=""))
    monkeypatch.setattr("envbuild.lock.resolve.resolve_image", lambda *_: resolution)
    monkeypatch.setattr("envbuild.lock.update.current_lock", lambda *_: SimpleNamespace(base_image=None))
    monkeypatch.setattr("envbuild.build.plan.planner.make_plan", lambda *_: small_plan())
    done = ImageRecord("x", "", "", "", "embedded", (), "", (), (), (), 0.0)
    at = replace(workspace(tmp_path / "w"), store=store, reporter=reporter)
    to = replace(place, write=True, sign=team[0], keys=(team[1],))

    monkeypatch.setattr("envbuild.publish.make_and_share.read_image_record", lambda *_: done)

    def sent(*below: str) -> list[str]:
        monkeypatch.setattr("envbuild.export.base_caches.caches_below", lambda *_: {"below": below})
        reporter.lines.clear()
        caches = open_caches(Site(Path("/"), caches=(to,)), reporter)
        make_and_share(lambda *_: done, "x", at, Options(caches=caches))
        return reporter.lines

    (line,) = sent("r.example/unsigned")
    assert line.startswith(f"{len(records)} units not signed for the cache {place.at}")
    assert f"{len(records)} units" in sent(*to.names)[-1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_units_of_a_group_store_are_not_signed(tmp_path: Path, place: UnitCache, team: tuple[Path, Path]) -> None:
    """Who trusts the key of one member does not trust all who may write the store, and replace what a unit of that
    member is built on."""
    store, records = built_store(tmp_path / "a")
    for folder in (store.root, *store.root.iterdir()):
        os.chown(folder, -1, 50_001)
        folder.chmod(0o3775)
    lines = send(Store.open(store.root), records, place, *team)
    assert lines[0].startswith(
        f"{len(records)} units not signed for the cache {place.at}, nor sent there: {store.root}"
    )
    assert fill(Store.open(tmp_path / "b"), place, team[1])[0] == {}


def test_a_key_that_cannot_be_used_stops_the_command(tmp_path: Path, place: UnitCache, team: tuple[Path, Path]) -> None:
    store, records = built_store(tmp_path / "a")
    send(store, records, place, *team)
    with pytest.raises(SignatureError, match="cannot be read"):
        fill(Store.open(tmp_path / "b"), place, tmp_path / "none.pub")


def test_a_wrong_passphrase_sends_nothing_and_preserves_the_image(
    tmp_path: Path, place: UnitCache, team: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, records = built_store(tmp_path / "a")
    monkeypatch.setenv(VARIABLE, "wrong")
    lines = send(store, records, place, *team)
    assert "it cannot be written: the passphrase does not open the key" in lines[-1]
    assert not fill(Store.open(tmp_path / "b"), place)[0]


def test_a_private_key_that_cannot_be_used_is_reported_before_the_build(
    tmp_path: Path, place: UnitCache, team: tuple[Path, Path]
) -> None:
    """An open one, for example; a build may take an hour."""
    key = tmp_path / "open.key"
    key.write_bytes(team[0].read_bytes())
    reporter = SilentReporter()
    built: list[list[str]] = []
    at = replace(workspace(tmp_path / "b"), reporter=reporter)
    done = ImageRecord("x", "", "", "", "buildah", (), "", (), (), (), 0.0)  # an engine without caches
    for mode, count in ((0o644, 1), (0o600, 0)):
        key.chmod(mode)
        reporter.lines.clear()
        caches = open_caches(Site(Path("/"), caches=(replace(place, write=True, sign=key, keys=(team[1],)),)), reporter)

        def make(*_: object) -> ImageRecord:
            built.append(list(reporter.lines))
            return done

        make_and_share(make, "x", at, Options(caches=caches))
        assert len(built[-1]) == count
    assert f"no unit can be sent to the cache {place.at}: the private key {key} is open to other users" in built[0][0]
