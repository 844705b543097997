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

from envbuild.build.earlier_builds import earlier_units, expected_seconds
from envbuild.build.plan.units import Plan, Product, Unit
from envbuild.core.store.build_records import UnitRecord
from envbuild.core.store.store import Store
from envbuild.core.text import amount, counted, duration

# Bytes of a layer, and of its pack, for each byte of its packages, by kind of input. Measured on cpu-ucx (Debian
# packages: layers 1138 MB of 274 MB, packs 167 MB of 108 MB) and on cpu-ucc (wheels: 5.5 GB and 3.0 GB of 3.0 GB).
UNPACKED = {"debian": 4.1, "files": 1.8}
PACKED = {"debian": 1.5, "files": 1.0}
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
    layers = {unit.name: layer_size(unit, earlier) for unit in units}
    least = sum(certain_size(unit, earlier) for unit in units if makes_layer(unit))
    packs = {unit.name: pack_size(unit, earlier) for unit in plan.units if unit.in_image}
    grown = download + sum(layers.values()) + sum(packs.get(name, 0) for name in layers)
    image = sum(packs.values())  # the squashfs file has about the bytes of its packs
    status = os.statvfs(store.root)
    return Forecast(
        units=tuple(unit.name for unit in units),
        files=len(wanted),
        download=download,
        store=grown + image,
        peak=grown + max(image, *layers.values(), 0),
        least=download + least,
        free=status.f_bavail * status.f_frsize,
        seconds=expected_seconds(plan, units, earlier, workers),
        cpu_minutes={unit.name: unit.cpu_minutes for unit in units if unit.cpu_minutes},
    )


def makes_layer(unit: Unit) -> bool:
    """Return whether a unit makes a layer, and not wheels for others."""
    return unit.product is Product.LAYER


def package_bytes(unit: Unit) -> dict[str, int]:
    """Return kind of input → bytes of the packages of a unit."""
    found = dict.fromkeys(UNPACKED, 0)
    for item in unit.inputs:
        if item.kind in found:
            found[item.kind] += sum(blob.size for blob in item.blobs)
    return found


def known_size(unit: Unit, earlier: Mapping[str, UnitRecord]) -> int:
    """Return the size of the layer that a unit had in an earlier build; 0 without one."""
    record = earlier.get(unit.name)
    return record.layer.size if record and record.layer else 0


def estimated_size(unit: Unit) -> int:
    """Return the size of the layer of a unit by its packages; 0 if it has none."""
    return int(sum(UNPACKED[kind] * size for kind, size in package_bytes(unit).items()))


def layer_size(unit: Unit, earlier: Mapping[str, UnitRecord]) -> int:
    """Return the size of the layer of a unit, about; 0 if it makes none, or nothing is known."""
    return (known_size(unit, earlier) or estimated_size(unit)) if makes_layer(unit) else 0


def certain_size(unit: Unit, earlier: Mapping[str, UnitRecord]) -> int:
    """Return the least size of the layer of a unit. A build of more packages may have made the earlier layer, so that
    counts only up to the estimate for those that the unit has now."""
    packages, known = sum(package_bytes(unit).values()), known_size(unit, earlier)
    return max(packages, min(known, estimated_size(unit))) if packages else known


def pack_size(unit: Unit, earlier: Mapping[str, UnitRecord]) -> int:
    """Return the size of the pack of a unit, about."""
    packages = package_bytes(unit)
    if any(packages.values()):
        return int(sum(PACKED[kind] * size for kind, size in packages.items()))
    return int(layer_size(unit, earlier) * PACKED["debian"] / UNPACKED["debian"])


def received(store: Store, sha256: str) -> int:
    """Return the bytes of a file that an interrupted download left."""
    try:
        return store.part(sha256).stat().st_size
    except OSError:
        return 0
