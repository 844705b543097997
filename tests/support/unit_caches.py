"""Stores with the units of a plan, and caches that they are sent to and taken from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from envbuild.build.cache.fill_store import fill_from_caches
from envbuild.build.cache.open_cache import OpenCache, open_caches
from envbuild.build.engines.base import BuildOptions
from envbuild.build.plan.units import Plan, Product
from envbuild.core.console import SilentReporter
from envbuild.core.store.build_records import PACK_VERSION
from envbuild.core.store.json_files import read_sealed, write_sealed
from envbuild.core.store.store import Store, UnitRecord
from envbuild.net.site import Site
from envbuild.net.unit_caches import UnitCache
from envbuild.publish.cached_units import send_units
from envbuild.squashfs.pack.file import HEAD
from tests.support.foreign_images import noise
from tests.support.small_plan import small_plan
from tests.support.stored_layers import files, layer

UNITS = len(small_plan().units)
IMAGE = [unit.name for unit in small_plan().units if unit.in_image]


def built_store(path: Path) -> tuple[Store, list[UnitRecord]]:
    """Return a store with each unit of `small_plan`, and their records."""
    store, plan = Store.open(path), small_plan()
    keys, records = plan.keys(), []
    for unit in plan.units:
        if unit.product is Product.WHEEL:
            content = f"wheel {unit.name}".encode()
            digest = hashlib.sha256(content).hexdigest()
            store.blob(digest).write_bytes(content)
            record = UnitRecord(keys[unit.name], unit.name, None, ((f"{unit.name}-1-py3-none-any.whl", digest),), 2.0)
        else:
            made = layer(store, unit.name, files(**{unit.name: noise(50_000, len(unit.name)).hex()}))
            record = UnitRecord(keys[unit.name], unit.name, made, (), 1.5, {"seccomp": True})
        store.record_unit(record)
        records.append(record)
    return store, records


def of_earlier_format(pack: bytes) -> bytes:
    """Return a pack as a release with another format of packs may have written it."""
    magic, version, zero = HEAD.unpack(pack[: HEAD.size])
    return HEAD.pack(magic, version - 1, zero) + pack[HEAD.size :]


def age_packs(packs: Path) -> None:
    """Leave the packs of a store, and the records of those that its users share, as a release of before has them."""
    for path in packs.glob(f"*.v{PACK_VERSION}"):
        path.with_suffix(f".v{PACK_VERSION - 1}").write_bytes(of_earlier_format(path.read_bytes()))
        path.unlink()
    for path in packs.glob("*.layer.json"):
        value = read_sealed(path)
        path.unlink()
        earlier = value["pack"].replace(f".v{PACK_VERSION}", f".v{PACK_VERSION - 1}")
        write_sealed(packs / f"{path.name[:64]}.layer.json", {**value, "pack": earlier})


def setting(place: str | Path, *, write: bool = False) -> UnitCache:
    """Return a cache: a folder, or ``HOST/REPOSITORY``."""
    return UnitCache(str(place), place if isinstance(place, Path) else None, write)


def opened(reporter: SilentReporter, *caches: UnitCache) -> tuple[OpenCache, ...]:
    return open_caches(Site(Path("/"), caches=caches), reporter)


def send(store: Store, records: Sequence[UnitRecord], *places: str | Path) -> list[str]:
    """Send units to caches; return what was reported."""
    reporter = SilentReporter()
    send_units(records, opened(reporter, *(setting(place, write=True) for place in places)), store, reporter)
    return reporter.lines


def fill(store: Store, *places: str | Path, plan: Plan | None = None) -> tuple[dict[str, UnitRecord], list[str]]:
    """Take the units of `small_plan` from caches; return them and what was reported."""
    reporter = SilentReporter()
    caches = opened(reporter, *map(setting, places))
    options = replace(BuildOptions(), caches=frozenset(cache.name for cache in caches))
    return fill_from_caches(plan or small_plan(), store, caches, reporter, options), reporter.lines


def warnings(lines: Sequence[str]) -> list[str]:
    """Return the lines about units and caches that are not used."""
    return [line for line in lines if "is refused: " in line or "is not used: " in line]
