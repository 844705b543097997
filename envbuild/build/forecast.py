"""The forecast of a build: the bytes that it downloads, the growth of the store, the most that it takes meanwhile, and
its duration. It comes from the lock, from the present content of the store and from the records of earlier builds of
the image; nothing in it is from the network.

A layer has the size that the unit of this name had in an earlier build. Of a unit without a record it is estimated from
its packages, by ratios that were measured (`UNPACKED`, `PACKED`); a compiled prefix is not estimated. The duration is
that of the earlier builds in this store, and not stated if one of the units has no record; instead the CPU time of
compiling is, where the recipes have measured one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envbuild.build.plan.units import Plan, Product, Unit
from envbuild.core.store.build_records import UnitRecord
from envbuild.core.store.json_files import read_json, read_sealed
from envbuild.core.store.records import parse_record
from envbuild.core.store.store import Store
from envbuild.core.text import amount, counted, duration

# Measured on cpu-ucx: bytes of a layer for each byte of its packages (1196 MB of 290 MB); bytes of a pack and of the
# squashfs file for each byte of a layer (184 MB of 513 MB).
UNPACKED = 4.1
PACKED = 0.36
LONGEST, LARGEST = 1e7, 1 << 50  # seconds and bytes of a unit, beyond any build
LONG = 2.0  # minutes; less compiling is not worth a line


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast of one build. Sizes are in bytes.

    units: names of the units to build
    files, download: inputs that the store lacks, and what is still to be received of them
    store: growth of the store
    peak: the most that it grows by while units are built
    least: the part of `store` that is certain
    free: what is free on the disk of the store
    seconds: of the units, by the records of earlier builds; None if one has no record
    cpu_minutes: of compiling, as the recipes measured it on one machine, by unit
    """

    units: tuple[str, ...]
    files: int
    download: int
    store: int
    peak: int
    least: int
    free: int
    seconds: float | None
    cpu_minutes: Mapping[str, float] = field(default_factory=dict)

    def line(self) -> str:
        """Return the forecast as one line."""
        parts = [f"{counted(len(self.units), 'unit')} to build"]
        if self.files:
            parts.append(f"{amount(self.download)} to download ({counted(self.files, 'file')})")
        parts.append(f"about {amount(self.store)} more in the store, {amount(self.peak)} at most meanwhile")
        parts.append(f"{amount(self.free)} free")
        if self.seconds is not None:
            parts.append(f"about {duration(self.seconds)}, as in earlier builds")
        elif (total := sum(self.cpu_minutes.values())) >= LONG:
            each = sorted(self.cpu_minutes.items(), key=lambda item: -item[1])
            named = ", ".join(f"{name} {minutes:.0f}" for name, minutes in each if minutes >= LONG)
            text = f"{total:.0f} min of CPU time to compile{f' ({named})' if named else ''}, as the recipes measured it"
            parts.append(f"{text}; a stopped run resumes at the next unit")
        return f"forecast: {'; '.join(parts)}"

    def row(self) -> dict[str, Any]:
        """Return the forecast as plain data for JSON."""
        return {
            **{"units": list(self.units), "files": self.files, "download_bytes": self.download},
            **{"store_bytes": self.store, "peak_bytes": self.peak, "free_bytes": self.free},
            **{"seconds": self.seconds, "cpu_minutes": dict(self.cpu_minutes)},
        }


def make_forecast(plan: Plan, units: Sequence[Unit], wanted: Mapping[str, int], store: Store, workers: int) -> Forecast:
    """Return the forecast for the build of `units` of a plan.

    wanted: sha256 → size of the inputs that the store lacks
    workers: units that are built at once
    """
    earlier = earlier_units(store, plan.image)
    download = sum(max(size - received(store, sha256), 0) for sha256, size in wanted.items())
    layers, least = {}, 0
    for unit in units:
        record = earlier.get(unit.name)
        known = record.layer.size if record and record.layer else 0
        packages = sum(blob.size for item in unit.inputs if item.kind in ("files", "debian") for blob in item.blobs)
        is_layer = unit.product is Product.LAYER
        layers[unit.name] = known or (int(packages * UNPACKED) if is_layer else 0)
        least += known or (packages if is_layer else 0)
    packs = {unit.name: int(layers[unit.name] * PACKED) for unit in units if unit.in_image}
    grown = download + sum(layers.values()) + sum(packs.values())
    sizes = (layers.get(unit.name, 0) or stored_size(unit, earlier) for unit in plan.units if unit.in_image)
    image = int(PACKED * sum(sizes))
    largest = max(layers.values(), default=0)
    status = os.statvfs(store.root)
    return Forecast(
        units=tuple(unit.name for unit in units),
        files=len(wanted),
        download=download,
        store=grown + image,
        peak=grown + max(image, largest),
        least=download + least,
        free=status.f_bavail * status.f_frsize,
        seconds=expected_seconds(plan, units, earlier, workers),
        cpu_minutes={unit.name: unit.cpu_minutes for unit in units if unit.cpu_minutes},
    )


def stored_size(unit: Unit, earlier: Mapping[str, UnitRecord]) -> int:
    """Return the size of the layer that a unit had in an earlier build; 0 without one."""
    record = earlier.get(unit.name)
    return record.layer.size if record and record.layer else 0


def received(store: Store, sha256: str) -> int:
    """Return the bytes of a file that an interrupted download left."""
    try:
        return store.part(sha256).stat().st_size
    except OSError:
        return 0


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
