"""Folders that a stage of a Containerfile copies from the stages of other units.

A layer of the embedded engine also has what its unit removed. A COPY only adds, so that each stage lists what it
removed, and the stages that copy its folder remove that first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from envbuild.build.blocks import hpccm
from envbuild.build.plan.units import Plan, Unit
from envbuild.build.plan.written_files import GONE, NEXT, copy_attributes, remove_gone
from envbuild.build.steps import INPUTS

# Top folders of a Debian system in which packages have files (Debian's policy leaves /opt to others)
DEBIAN_TOPS = "bin boot dev etc home lib lib64 media mnt root run sbin srv sys tmp usr var".split()  # noqa: SIM905


def split_lowers(plan: Plan, unit: Unit) -> tuple[str, list[Unit]]:
    """Return what a stage is based on: the last lower that is a whole root (base, Debian packages), and those that
    provide a folder. A chain on one folder (the venv) is provided by its last member, and by what only builds see of
    that folder, first."""
    lowers = [plan.unit(name) for name in unit.lowers]
    roots = [lower.name for lower in lowers if not lower.keep]
    folders: dict[tuple[str, ...], Unit] = {lower.keep: lower for lower in lowers if lower.keep}
    copied = [plan.unit(name) for last in folders.values() for name in (*last.build_only, last.name)]
    return (roots[-1] if roots else ""), [lower for lower in copied if lower in lowers]


def provide_folders(plan: Plan, unit: Unit, other: Unit) -> Iterator[Any]:
    """Yield the instructions that copy the folder of another unit into a stage, with its owner and mode: a COPY makes a
    new folder, of root, for all. Call it inside of `hpccm.hpccm_target`."""
    for member in chain_below(plan, unit, other):
        if found_before(plan, member):  # a COPY alone does not remove what the unit removed
            gone = f"type=bind,from={member.name},source={GONE},target={GONE},ro"
            yield hpccm.run(remove_gone(), [gone])
    for folder in other.keep:
        yield hpccm.copy_from(other.name, folder)
    places = {f"{INPUTS}/folder-{number}": folder for number, folder in enumerate(other.keep)}
    mounts = [f"type=bind,from={other.name},source={folder},target={place},ro" for place, folder in places.items()]
    yield hpccm.run(NEXT.join(copy_attributes(place, folder) for place, folder in places.items()), mounts)


def chain_below(plan: Plan, unit: Unit, last: Unit) -> Iterator[Unit]:
    """Yield the lowers of a unit that provide the same folder as `last`, up to this one, bottom first."""
    for name in unit.lowers:
        if plan.unit(name).keep == last.keep:
            yield plan.unit(name)
        if name == last.name:
            return


def found_before(plan: Plan, unit: Unit) -> tuple[str, ...]:
    """Return the folders that a unit provides in which its steps may find something and remove it: of a base image, of
    Debian, of another unit with an outer or inner folder, of what only builds see."""
    lowers = [plan.unit(name) for name in unit.lowers]
    foreign = any(lower.layers for lower in lowers)
    others = [lower for lower in lowers if lower.keep != unit.keep or lower.name in unit.build_only]
    known = [PurePosixPath(top) for lower in others for top in lower.keep]

    def may_be_there(folder: str) -> bool:
        path = PurePosixPath(folder)
        near = any(path.is_relative_to(other) or other.is_relative_to(path) for other in known)
        return foreign or near or path.parts[1] in DEBIAN_TOPS

    return tuple(folder for folder in unit.keep if may_be_there(folder))
