"""A build: which units are missing."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from envbuild.build.engines.base import BuildOptions
from envbuild.build.engines.embedded.build_plan import find_missing_units
from envbuild.core.store.store import LayerRecord, Store, UnitRecord, write_json
from tests.support.small_plan import small_plan

pytestmark = pytest.mark.unit


def stored(store: Store, *names: str) -> dict[str, str]:
    """Record units in the store; return the keys of all."""
    keys = small_plan().keys()
    for name in names:
        layer = LayerRecord(f"sha256:{keys[name]}", 1, 1, name)
        store.layer_path(layer.diff_id).mkdir()
        write_json(store.layer_path(layer.diff_id) / "layer.json", asdict(layer))
        store.record_unit(UnitRecord(keys[name], name, layer))
    return keys


def test_units_of_the_image_and_what_they_need_are_missing_at_first(store: Store) -> None:
    plan, records = small_plan(), {}
    missing = find_missing_units(plan, plan.keys(), store, BuildOptions(), records)
    assert [unit.name for unit in missing] == [unit.name for unit in plan.units] and records == {}


def test_what_only_stored_units_need_is_not_built(store: Store) -> None:
    plan, records = small_plan(), {}
    image = [unit.name for unit in plan.units if unit.in_image]
    keys = stored(store, *image)
    assert find_missing_units(plan, keys, store, BuildOptions(), records) == []
    assert sorted(records) == sorted(image)
    (store.root / "units" / f"{keys['ucx']}.json").unlink()
    records = {}
    missing = [unit.name for unit in find_missing_units(plan, keys, store, BuildOptions(), records)]
    assert missing == ["root-build-ucx", "ucx"] and "ucx" not in records and "base" in records
    everything = find_missing_units(plan, keys, store, BuildOptions(rebuild=True), {})
    assert [unit.name for unit in everything] == [unit.name for unit in plan.units]
