"""Units and plans: the input of an engine.

A unit is one isolated build: a stack of layers below, read-only inputs, commands, and one product, which is either a
layer or wheels. Its key is the hash of exactly that, so an unchanged unit is never built again, in any image.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from envbuild.build.steps import INPUTS, WORK, Step
from envbuild.oci.config import ImageConfig


class Product(StrEnum):
    """The product of a unit."""

    LAYER = "layer"
    WHEEL = "wheel"  # the files *.whl that the commands put into /run/envbuild/out


@dataclass(frozen=True, slots=True)
class Blob:
    """A file of the content store under the name that a unit sees."""

    name: str
    sha256: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class Input:
    """A read-only folder of a unit, below /run/envbuild.

    `kind`: ``files`` (the blobs under their names, and the wheels of `units`), ``debian`` (the same as a flat apt
    repository with its ``Packages`` index), ``tree`` (the single blob, an archive, unpacked), ``text`` (small files
    given as name → content).
    """

    name: str
    kind: str = "files"
    blobs: tuple[Blob, ...] = ()
    units: tuple[str, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Unit:
    """One isolated build.

    `lowers` are names of units of the same plan, bottom first. `seed` lists Debian packages (file names in the input
    ``debs``) that are extracted into the empty tree before the first step, `layers` OCI layers (file names in the input
    ``layers``, bottom first) that are applied to it: only the base has one of these. `keep` limits the
    layer to these absolute paths; empty means everything. `build_only`: lowers below these paths that the image does
    not contain; the layer has its own entries also where one of these shows the same. `in_image`: whether the layer is
    part of the image. `memory_gb` is what one compile job takes, `cpu_minutes` what the whole build took where it was
    measured (0: not measured).
    """

    name: str
    title: str
    steps: tuple[Step, ...]
    lowers: tuple[str, ...] = ()
    inputs: tuple[Input, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    keep: tuple[str, ...] = ()
    build_only: tuple[str, ...] = ()
    seed: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    product: Product = Product.LAYER
    in_image: bool = True
    memory_gb: float = 0.5
    cpu_minutes: float = 0.0
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Units in an order in which each comes after those that it needs, and the image that their layers make."""

    image: str
    units: tuple[Unit, ...]
    config: ImageConfig
    epoch: int

    def unit(self, name: str) -> Unit:
        return next(unit for unit in self.units if unit.name == name)

    def needs(self, unit: Unit) -> tuple[str, ...]:
        """Return the names of the units whose product `unit` uses: its lowers, then those that build its wheels."""
        return tuple(dict.fromkeys([*unit.lowers, *(name for item in unit.inputs for name in item.units)]))

    def keys(self) -> dict[str, str]:
        """Return unit name → key (sha256 hex of everything that can change the product; titles and memory cannot)."""
        keys: dict[str, str] = {}
        for unit in self.units:
            content = asdict(unit)
            for field_name in ("name", "title", "memory_gb", "cpu_minutes", "in_image"):
                content.pop(field_name)
            for field_name in ("layers", "build_only"):  # came later: the keys of units without them do not change
                if not content[field_name]:
                    content.pop(field_name)
            content["steps"] = [step.command for step in unit.steps]
            content["lowers"] = [keys[name] for name in unit.lowers]
            for item in content["inputs"]:
                item["units"] = [keys[name] for name in item["units"]]
            content["model"] = MODEL
            text = json.dumps(content, sort_keys=True, separators=(",", ":"))
            keys[unit.name] = hashlib.sha256(text.encode()).hexdigest()
        return keys


# Raise it when the clean list, the sandbox or the scan changes the bytes of a layer; tests/build/test_model.py watches.
MODEL = 3

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # of units, runs and images alike

FIXED = {
    "PATH": SYSTEM_PATH,
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "DEBIAN_FRONTEND": "noninteractive",
    "PYTHONDONTWRITEBYTECODE": "1",
    # nvcc -jN otherwise puts the process id into a symbol; measured on 13.2
    "NVCC_APPEND_FLAGS": "--objdir-as-tempdir",
    "TMPDIR": WORK,
}


def environment(unit: Unit, jobs: int = 2) -> dict[str, str]:
    """Return the whole environment of a unit's steps, the same for every engine: nothing of the caller's gets in.

    `jobs` is the number of compile jobs, which must not change the product.
    """
    values = {**FIXED, "SOURCE_DATE_EPOCH": str(unit.epoch), "ENVBUILD_JOBS": str(jobs), **unit.env}
    if any(item.kind == "debian" for item in unit.inputs):
        values["APT_CONFIG"] = f"{INPUTS}/apt.conf"
    return values
