"""The records of earlier builds of an image in the store: size of each layer, duration of each unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envbuild.build.plan.units import Plan, Unit
from envbuild.core.store.build_records import UnitRecord
from envbuild.core.store.json_files import read_json, read_sealed
from envbuild.core.store.records import parse_record
from envbuild.core.store.store import Store

LONGEST, LARGEST = 1e7, 1 << 50  # seconds and bytes of a unit, beyond any build


def earlier_units(store: Store, image: str) -> dict[str, UnitRecord]:
    """Return unit → the record of its newest build, of the builds of the image `image` in this store."""
    found: dict[str, UnitRecord] = {}
    paths = sorted((store.root / "images").glob("*.json"), key=lambda path: path.lstat().st_mtime_ns, reverse=True)
    for path in paths:
        value = parse_record(read_json(path))
        if value is None or value["made"].get("image") != image:
            continue
        for key in value["holds"]["units"]:
            record = UnitRecord.parse(read_sealed(store.root / "units" / f"{key}.json"))
            if record and record.key == key and is_plausible(record):
                found.setdefault(record.unit, record)
    return found


def is_plausible(record: UnitRecord) -> bool:
    """Return whether the numbers of a record can be those of a build: another member of a group may have written it."""
    return 0 <= record.seconds < LONGEST and (record.layer is None or 0 <= record.layer.size < LARGEST)


def expected_seconds(
    plan: Plan, units: Sequence[Unit], earlier: Mapping[str, UnitRecord], workers: int
) -> float | None:
    """Return the seconds of a build by the records of its units; None if one of them was not built here before.

    No build is faster than its longest chain of units, or than all of them divided among the `workers`.
    """
    times: dict[str, float] = {}
    for unit in units:
        record = earlier.get(unit.name)
        if record is None or record.source:  # a cache built it
            return None
        times[unit.name] = record.seconds
    ends: dict[str, float] = {}
    for unit in units:  # each comes after those that it needs
        ends[unit.name] = times[unit.name] + max((ends.get(name, 0.0) for name in plan.needs(unit)), default=0.0)
    return round(max([*ends.values(), sum(times.values()) / max(workers, 1)], default=0.0), 1)
