"""The forecast of a build: from the lock and from the records of earlier builds, and silent where there are none."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from envbuild.build.forecast import PACKED, UNPACKED, Forecast, make_forecast
from envbuild.build.plan.units import Blob, Input, Plan, Product, Unit
from envbuild.build.steps import Step
from envbuild.core.store.build_records import LayerRecord, UnitRecord
from envbuild.core.store.records import write_record
from envbuild.core.store.store import Store
from envbuild.oci.config import ImageConfig

pytestmark = pytest.mark.unit
MB = 1_000_000


def unit(name: str, *sizes: int, kind: str = "debian", **rest: object) -> Unit:
    blobs = tuple(Blob(f"{name}-{size}", f"{name}{size}", size) for size in sizes)
    return Unit(name, name, (Step("true"),), inputs=(Input("given", kind, blobs),), **rest)  # type: ignore[arg-type]


BASE = unit("base", 40 * MB)
VENV = unit("venv", 20 * MB, kind="files", lowers=("base",))
WHEEL = unit("wheel", 5 * MB, kind="files", lowers=("base",), product=Product.WHEEL, in_image=False, cpu_minutes=24.0)
PLAN = Plan("app", (BASE, WHEEL, VENV), ImageConfig(), 0)


def record(store: Store, image: str, *records: UnitRecord, number: int = 0) -> None:
    """Record a build of an image with these units."""
    artifact = store.root / f"artifacts/{image}-{number}.sqsh"
    artifact.write_bytes(b"x")
    for item in records:
        store.record_unit(item)
    made = {"image": image, "artifact": str(artifact), "layers": []}
    write_record(store.root / f"images/{number:064x}.json", made, units=[item.key for item in records])


def built(name: str, size: int, seconds: float, key: str = "", source: str = "") -> UnitRecord:
    layer = LayerRecord(f"sha256:{'a' * 64}", size, 1, name) if size else None
    return UnitRecord(key or f"key-{name}", name, layer, seconds=seconds, source=source)


def test_without_records_sizes_come_from_the_packages_and_no_duration_is_stated(store: Store) -> None:
    (store.own / "partial").mkdir(exist_ok=True)
    store.part("venv1").write_bytes(bytes(1000))
    found = make_forecast(PLAN, PLAN.units, {"base1": 3 * MB, "venv1": MB, "unknown": 0}, store, 2)
    assert (found.files, found.download) == (3, 4 * MB - 1000)
    layers = int(40 * MB * UNPACKED["debian"]) + int(20 * MB * UNPACKED["files"])
    packs = int(40 * MB * PACKED["debian"]) + int(20 * MB * PACKED["files"])
    assert found.store == found.download + layers + 2 * packs  # a pack, and its part of the squashfs file
    assert found.peak == found.store - packs + int(40 * MB * UNPACKED["debian"])
    assert found.least == found.download + 60 * MB
    assert found.seconds is None and found.cpu_minutes == {"wheel": 24.0}
    assert "24 min of CPU time to compile (wheel 24)" in found.line() and "earlier builds" not in found.line()


def test_records_of_the_same_image_state_sizes_and_the_duration(store: Store) -> None:
    record(store, "app", built("base", 200 * MB, 60), built("wheel", 0, 600), built("venv", 90 * MB, 30), number=1)
    record(store, "other", built("base", 7, 7, key="of-other"), number=2)
    found = make_forecast(PLAN, PLAN.units, {}, store, 2)
    packs = int(40 * MB * PACKED["debian"]) + int(20 * MB * PACKED["files"])
    assert found.store == 290 * MB + 2 * packs
    assert found.least == int(40 * MB * UNPACKED["debian"]) + int(20 * MB * UNPACKED["files"])
    assert found.seconds == 660  # the wheel after the base; the venv beside it
    assert "about 11 min, as in earlier builds" in found.line() and "download" not in found.line()
    assert make_forecast(PLAN, [VENV], {}, store, 2).seconds == 30


def test_the_layer_of_earlier_packages_is_not_certain(store: Store) -> None:
    """The venv was of other packages: a disk that the present ones fit on is not refused."""
    record(store, "app", built("venv", 9000 * MB, 30))
    found = make_forecast(PLAN, [VENV], {}, store, 2)
    assert found.least == int(20 * MB * UNPACKED["files"]) < 9000 * MB < found.store
    prefix = Unit("ucx", "ucx", (Step("true"),))
    record(store, "app", built("ucx", 30 * MB, 60))
    assert make_forecast(Plan("app", (prefix,), ImageConfig(), 0), [prefix], {}, store, 2).least == 30 * MB


@pytest.mark.parametrize("missing", ["venv", "cached"])
def test_a_unit_that_was_not_built_here_leaves_the_duration_open(store: Store, missing: str) -> None:
    venv = [built("venv", 9, 30, source="cache")] if missing == "cached" else []
    record(store, "app", built("base", 9, 60), built("wheel", 0, 600), *venv)
    assert make_forecast(PLAN, PLAN.units, {}, store, 2).seconds is None
    assert make_forecast(PLAN, [BASE], {}, store, 2).seconds == 60


@pytest.mark.parametrize("content", ["", "{", "[]", '{"made": {"image": "app"}}'])
def test_damaged_records_are_absent(store: Store, content: str) -> None:
    record(store, "app", built("base", 9, 60))
    (store.root / "units/key-base.json").write_text(content)
    (store.root / f"images/{9:064x}.json").write_text(content)
    assert make_forecast(PLAN, [BASE], {}, store, 2).seconds is None


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_a_record_with_numbers_of_no_build_is_absent(store: Store, seconds: float) -> None:
    record(store, "app", built("base", 9, seconds))
    assert make_forecast(PLAN, [BASE], {}, store, 2).seconds is None
    record(store, "app", built("base", -5 if seconds < 0 else 1 << 60, 1))
    assert make_forecast(PLAN, [BASE], {}, store, 2).least == 40 * MB


def test_the_json_of_a_forecast_has_all_that_its_line_states(store: Store) -> None:
    found = make_forecast(PLAN, PLAN.units, {"base1": 3}, store, 2)
    row = found.row()
    assert row.pop("units") == ["base", "wheel", "venv"]
    renamed = {key.removesuffix("_bytes"): value for key, value in row.items()}
    assert renamed == {key: value for key, value in asdict(found).items() if key not in ("units", "least")}


def test_workers_bound_the_duration(store: Store) -> None:
    many = tuple(unit(f"u{number}", 1) for number in range(4))
    plan = Plan("app", many, ImageConfig(), 0)
    record(store, "app", *(built(item.name, 1, 10) for item in many))
    assert [make_forecast(plan, many, {}, store, workers).seconds for workers in (1, 2, 4)] == [40, 20, 10]
    assert isinstance(make_forecast(plan, many, {}, store, 0), Forecast)
