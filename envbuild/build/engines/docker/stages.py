"""The stages of a plan for BuildKit: the text of its Containerfile, and which layers of a stage are the unit's own.

Each unit is built as a target, and its layer is what the steps of its stage wrote: not the copies of other units, nor
what is mounted. So a layer has the bytes of the embedded engine's.

BuildKit mounts its own /etc/hosts and /etc/resolv.conf. Where a root lacks them, each step would make and remove them,
which changes the time of /etc: a first layer has them, and is left out (`envbuild.build.plan.own_hosts`).
"""

from __future__ import annotations

import copy
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from envbuild.build.blocks import hpccm
from envbuild.build.plan.containerfile import Instruction, instructions
from envbuild.build.plan.copied_folders import split_lowers
from envbuild.build.plan.own_hosts import LINK, TARGET
from envbuild.build.plan.units import Plan, Product, Unit

STUBS = "stubs.tar"
MOUNTED = ("etc/hosts", "etc/resolv.conf")


class Role(StrEnum):
    """The part of a file system layer in its unit."""

    SEED = "seed"  # what the base begins with
    STEP = "step"
    OTHER = "other"  # copies, inputs, and what separates them


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage: its unit, and the role of each of its file system layers, of those of the stages below as well."""

    unit: Unit
    roles: tuple[Role, ...]


def target_units(plan: Plan) -> list[Unit]:
    """Return the units whose layers are needed, in the order of the plan: those of the image."""
    return [unit for unit in plan.units if unit.in_image and unit.product is Product.LAYER]


def needed_units(plan: Plan, unit: Unit) -> set[str]:
    """Return the names of a unit and of all units that its build needs."""
    found, todo = set[str](), [unit.name]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += plan.needs(plan.unit(name))
    return found


def packed_over(plan: Plan, unit: Unit) -> list[str]:
    """Return the units over whose layers a unit's layer is packed, bottom first: those of the image alone. Others have
    nothing below its folders."""
    targets = {item.name for item in target_units(plan)}
    return [name for name in unit.lowers if name in targets and name not in unit.build_only]


def docker_instructions(plan: Plan) -> list[Instruction]:
    """Return the instructions of all stages, with a layer of the files that BuildKit mounts over; not those of the
    environment of the image. Call it inside of `hpccm.hpccm_target`."""
    every = instructions(plan, buildkit=True)
    return [item for unit in plan.units for item in _stage(plan, unit, every)]


def _stage(plan: Plan, unit: Unit, every: Sequence[Instruction]) -> Iterator[Instruction]:
    stage = [item for item in every if item.stage == unit.name]
    if unit is plan.units[-1]:  # the last instructions are of the environment of the image: no layer, no step
        while not stage[-1].layer:
            stage.pop()
    seeded = bool(unit.seed or unit.layers)
    for item in stage:
        yield item
        if seeded and item.layer:
            seeded = False
            yield Instruction(hpccm.raw(f"ADD {unit.name}/{STUBS} /"), unit.name, unit.name, layer=True)


def docker_containerfile(plan: Plan) -> str:
    """Return the text of the Containerfile."""
    with hpccm.hpccm_target(plan.config.architecture):
        return hpccm.render([item.item for item in docker_instructions(plan)]) + "\n"


def list_stages(plan: Plan) -> dict[str, Stage]:
    """Return unit name → its stage."""
    with hpccm.hpccm_target(plan.config.architecture):
        every = docker_instructions(plan)
    found: dict[str, Stage] = {}
    for unit in plan.units:
        below, _ = split_lowers(plan, unit)
        layers = [item for item in every if item.stage == unit.name and item.layer]
        seeded = bool(unit.seed or unit.layers)
        own = [Role.STEP if item.step >= 0 else Role.OTHER for item in layers]
        if seeded:
            own[0] = Role.SEED
        lower = (Role.OTHER,) * len(found[below].roles) if below else ()
        found[unit.name] = Stage(unit, (*lower, *own))
    return found


def write_stubs(plan: Plan, context: Path) -> None:
    """Write beside each seed what BuildKit mounts and the seed lacks: empty files, in an /etc as the seed has it."""
    for unit in plan.units:
        if not (unit.seed or unit.layers):
            continue
        with tarfile.open(context / unit.name / "seed.tar") as seed:
            members = {member.name.rstrip("/"): member for member in seed if member.name.startswith("etc")}
        folder = members.get("etc")
        with tarfile.open(context / unit.name / STUBS, "w") as stubs:
            if folder is None or not folder.isdir():
                continue
            stubs.addfile(folder)
            for name in MOUNTED:
                if name not in members:
                    entry = copy.copy(folder)
                    entry.name, entry.type, entry.mode, entry.pax_headers = name, tarfile.REGTYPE, 0o644, {}
                    if name == LINK and unit.seed:
                        entry.type, entry.linkname = tarfile.SYMTYPE, TARGET
                    stubs.addfile(entry)
