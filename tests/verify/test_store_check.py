"""The check of a store: each kind of damage is named, and removed when that is requested."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from envbuild.cli.store import store_comparison
from envbuild.core.store.store import LayerRecord, Store, UnitRecord
from envbuild.spec.workspace import Workspace
from envbuild.verify import store_check
from envbuild.verify.store_check import KINDS, check_store
from tests.support import foreign_images as kit
from tests.support.bit_flips import flip_bit
from tests.support.foreign_images import made, workspace
from tests.support.local_registry import Layout
from tests.support.stored_inputs import blob
from tests.support.stored_layers import files, layer

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(os.geteuid() != 0, reason="layers made outside of a user namespace are read by root"),
]


@pytest.fixture
def at(tmp_path: Path) -> Workspace:
    """Return a workspace whose store has one entry of each kind, but three packs."""
    at = workspace(tmp_path / "store")
    layout = Layout(tmp_path / "layout")
    layout.add(kit.image(layout, kit.layers()))
    made(f"oci:{layout.path}", at)
    blob(at.store, b"an input")
    record: LayerRecord = layer(at.store, "one", files(a="content of a\n"))
    at.store.record_unit(UnitRecord("ab" * 32, "one", record))
    return at


def one(at: Workspace, pattern: str) -> Path:
    return next(path for path in sorted(at.store.root.glob(pattern)) if path.is_file() and not path.is_symlink())


def test_a_whole_store_is_compared(at: Workspace) -> None:
    result = store_comparison(at, repair=False)
    assert result.data["compared"] == dict.fromkeys(KINDS, 1) | {"packs": 3}
    assert result.data["damaged"] == result.data["unknown"] == []
    assert result.data["bytes"] > 6_000_000 and result.text.endswith("nothing is damaged")
    assert ": compared 3 packs, 1 layer, 1 blob, 1 unit, 1 image, 1 artifact; " in result.text


@pytest.mark.slow_unit
@pytest.mark.parametrize(
    "kind,pattern",
    [
        ("packs", "packs/*.v*"),
        ("layers", "layers/*/tree/a"),
        ("layers", "layers/*/layer.json"),
        ("blobs", "blobs/sha256/*"),
        ("units", "units/*.json"),
        ("images", "images/*.json"),
        ("artifacts", "artifacts/*.sqsh"),
    ],
)
def test_damage_is_named_and_removed(kind: str, pattern: str, at: Workspace) -> None:
    path = one(at, pattern)
    if path.suffix == ".json":
        path.write_bytes(path.read_bytes().replace(b'": "', b'": \xff', 1) if kind == "layers" else b"[]")
    else:
        flip_bit(path, path.stat().st_size // 2, 5)
    entry = path.parents[1] if pattern.endswith("tree/a") else path.parent if kind == "layers" else path
    data = store_comparison(at, repair=False).data
    assert [(item["kind"], item["path"]) for item in data["damaged"]] == [(kind, str(entry.relative_to(at.store.root)))]
    assert data["damaged"][0]["reason"] and entry.exists()
    result = store_comparison(at, repair=True)
    assert result.data["damaged"] == data["damaged"] and not entry.exists()
    assert f"removed: {data['damaged'][0]['path']}" in result.text
    assert not store_comparison(at, repair=False).data["damaged"]


def test_a_record_that_no_command_can_read_is_damaged(at: Workspace) -> None:
    """A flipped bit in the name of the checksum leaves an object without one, with an unknown key."""
    path = one(at, "layers/*/layer.json")
    path.write_bytes(path.read_bytes().replace(b'"checksum"', b'"checksul"'))
    damaged = check_store(at.store, at.reporter, repair=True).damaged
    assert [(item.kind, item.path) for item in damaged] == [("layers", path.parent)]
    assert not path.exists()


def test_images_without_a_sha256_are_not_compared(at: Workspace) -> None:
    record = one(at, "images/*.json")
    value = json.loads(record.read_bytes())
    value["made"]["sha256"] = ""
    record.write_text(json.dumps(value))
    found = check_store(at.store, at.reporter, repair=False)
    assert found.unknown == [one(at, "artifacts/*.sqsh")] and found.compared["artifacts"] == 0


@pytest.mark.slow_unit
def test_what_cannot_be_removed_is_named(at: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's folder in the place of a record: the rest is removed all the same."""
    unit, pack = one(at, "units/*.json"), one(at, "packs/*.v*")
    unit.write_bytes(b"[]")
    flip_bit(pack, pack.stat().st_size // 2, 5)

    def remove(path: Path, store: Store) -> None:
        if path == unit:
            raise PermissionError(13, "Permission denied", str(path))
        path.unlink()

    monkeypatch.setattr(store_check, "remove_entry", remove)
    result = store_comparison(at, repair=True)
    assert result.data["remaining"] == [str(unit.relative_to(at.store.root))] and not pack.exists()
    assert f"not removed: units/{unit.name}" in result.text
