"""A plan as the text of a Containerfile, for users and for engines that read one.

Each unit is a stage; the stages of prefixes and of the venv give their folder to the image, the Debian packages are its
base, the glue runs in it. Inputs are read-only mounts from the build context (``CONTEXT/<unit>/<input>``, see
`envbuild.build.engines.build_context`), so nothing has to be reachable. The text uses only what buildah 1.28 and
BuildKit both know: no heredocs, no ``COPY --link``, no option of a mount that one of them lacks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from envbuild.build.blocks import hpccm
from envbuild.build.plan.copied_folders import found_before, provide_folders, split_lowers
from envbuild.build.plan.own_hosts import without_hosts
from envbuild.build.plan.units import Input, Plan, Unit, environment
from envbuild.build.plan.written_files import note_found, note_gone, note_written, remove_others
from envbuild.build.steps import INPUTS, WORK
from envbuild.core.errors import SpecError

OUT = f"{INPUTS}/out"
APT = f"{INPUTS}/apt"  # apt's lists, cache and log: in memory, so that nothing of them gets into a layer
NAME = re.compile(r"[^\s=\"'\\$`#\x00-\x1f\x7f]+")  # of a variable or a label
PRINTED = "printed by envbuild"  # in the first line
NEXT = " \\\n    "
UNLOCKED_BASE = "not locked: the base image's own variables, and its folders of PATH, are known when it is"
# Versions are in the lock, and a unit sees an archive that holds just those; a step may change folders within itself;
# texts of programs are in single quotes.
LINT = "# hadolint global ignore=DL3003,DL3008,SC2016"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: `item` (hpccm's), its `stage`, the `unit` whose content it adds, and the number of the unit's
    `step` that it runs (from 0; -1: none). `layer`: it makes a file system layer."""

    item: Any
    stage: str
    unit: str
    step: int = -1
    layer: bool = False


def containerfile(plan: Plan, *, locked: bool = True) -> str:
    """Return the text. Pure: rendered twice, or in two threads, it is the same. Not `locked`
    (`envbuild.lock.draft`), it leaves out the keys of units, which follow from the locked files. Raises SpecError
    for a value that a Containerfile cannot express."""
    with hpccm.hpccm_target(plan.config.architecture):
        how = f"inputs: envbuild compile {plan.image} --context DIR"
        if not locked:
            how = f"not locked: which files its inputs are stands open until envbuild lock {plan.image}"
        head = [hpccm.raw(f"# {plan.image}: {PRINTED}; {how}\n{LINT}")]
        items = [instruction.item for instruction in instructions(plan, locked=locked)]
        return hpccm.render([*head, *items]) + "\n"


def instructions(plan: Plan, *, locked: bool = True, buildkit: bool = False) -> list[Instruction]:
    """Return all instructions in order, or with `buildkit` those for BuildKit alone. Call it inside of
    `hpccm.hpccm_target`."""
    keys = plan.keys() if locked else {unit.name: "" for unit in plan.units}
    found: list[Instruction] = []
    for unit in plan.units:
        found += stage_instructions(plan, unit, keys[unit.name], buildkit=buildkit)
    last = list(runtime_instructions(plan))
    if not locked and any(unit.layers for unit in plan.units):
        last.insert(0, hpccm.comment(UNLOCKED_BASE, reformat=False))
    return found + [Instruction(item, plan.units[-1].name, plan.units[-1].name) for item in last]


def image_layers(plan: Plan) -> tuple[str, ...]:
    """Return the unit of each file system layer of the image, bottom first."""
    with hpccm.hpccm_target(plan.config.architecture):
        every = instructions(plan)
    chain = [plan.units[-1]]
    while below := split_lowers(plan, chain[0])[0]:
        chain.insert(0, plan.unit(below))
    return tuple(item.unit for unit in chain for item in every if item.stage == unit.name and item.layer)


def stage_instructions(plan: Plan, unit: Unit, key: str, *, buildkit: bool = False) -> Iterator[Instruction]:
    """Yield ``FROM below AS unit``, the folders that other units provide, its commands. `key` is the unit's, empty
    without a lock."""
    stacked, copied = split_lowers(plan, unit)

    def one(item: Any, other: Unit = unit, step: int = -1, layer: bool = False) -> Instruction:
        return Instruction(item, unit.name, other.name, step, layer)

    yield one(hpccm.stage(unit.name, stacked or "scratch", plan.config.architecture))
    if unit.seed or unit.layers:
        yield one(hpccm.raw(f"ADD {unit.name}/seed.tar /"), layer=True)
    values = environment(unit)
    path = values.pop("PATH")
    # ARGs are the environment of RUN and do not remain in the image; buildah lets no ARG have its way with PATH, and
    # makes up a HOSTNAME. The unit's key is among them because buildah's cache does not look into mounts.
    if not buildkit:
        values |= {"HOSTNAME": "envbuild", **({"ENVBUILD_UNIT": key} if key else {})}
    yield one(hpccm.raw(f"ENV PATH={quote_literal(path)}"))
    yield one(hpccm.raw("ARG " + assignments(dict(sorted(values.items())))))
    for other in copied:
        for item in provide_folders(plan, unit, other):
            yield one(item, other, layer=True)
    if not stacked:
        yield one(hpccm.run(f"mkdir -p {OUT} {WORK}"), layer=True)
    for item in unit.inputs:
        for text in copy_instructions(unit, item):
            yield one(hpccm.raw(text), layer=True)
    found = found_before(plan, unit)
    if found:
        yield one(hpccm.comment("what exists before the steps", reformat=False))
        yield one(hpccm.run(note_found(found)), layer=True)
    shared = list(dict.fromkeys(folder for name in unit.build_only for folder in plan.unit(name).keep))
    mounts = [mount for item in unit.inputs for mount in input_mounts(unit, item)]
    folders = f"mkdir -p {APT}/lists/partial {APT}/cache/archives/partial {APT}/log &&{NEXT}" if has_debs(unit) else ""
    for number, step in enumerate(unit.steps):
        if step.title:
            yield one(hpccm.comment(" ".join(step.title.split()), reformat=False))
        command, more = step.command.strip(), mounts
        if script := script_path(unit, number):
            name = script.rpartition("/")[2]
            command, more = (
                f"/bin/sh {INPUTS}/{name}",
                [*mounts, f"type=bind,source={script},target={INPUTS}/{name},ro"],
            )
        if shared:
            command = note_written(command, shared)
        if buildkit and unit.seed:
            command = without_hosts(command)
        yield one(hpccm.run(folders + command, more), step=number, layer=True)
    if found:
        yield one(hpccm.comment("what the steps removed of it", reformat=False))
        yield one(hpccm.run(note_gone(found)), layer=True)
    if shared:
        yield one(hpccm.comment("what the steps above did not write is removed", reformat=False))
        yield one(hpccm.run(remove_others(shared)), layer=True)


def script_path(unit: Unit, number: int) -> str:
    """Return where the context holds the command of a step that no RUN can hold, because a line of it ends or is a
    comment: its path there, or "" for every other step."""
    lines = unit.steps[number].command.strip().split("\n")
    ends = any(not line.rstrip().endswith("\\") for line in lines[:-1])
    if ends or any(line.lstrip().startswith("#") or not line.strip() for line in lines):
        return f"{unit.name}/step-{number + 1}.sh"
    return ""


def has_debs(unit: Unit) -> bool:
    return any(item.kind == "debian" for item in unit.inputs)


def copy_instructions(unit: Unit, item: Input) -> Iterator[str]:
    """Yield ``COPY`` of an input that has wheels of other units: several stages fill one folder, which no mount can."""
    target = f"{INPUTS}/{item.name}/"
    if item.units and item.blobs:
        yield f"COPY {unit.name}/{item.name}/ {target}"
    for name in item.units:
        yield f"COPY --from={name} {OUT}/ {target}"


def input_mounts(unit: Unit, item: Input) -> Iterator[str]:
    """Yield the mounts of one input."""
    if item.units:
        return
    yield f"type=bind,source={unit.name}/{item.name},target={INPUTS}/{item.name},ro"
    if item.kind == "debian":
        for name in ("apt.conf", "sources.list"):
            yield f"type=bind,source={unit.name}/{name},target={INPUTS}/{name},ro"
        yield f"type=tmpfs,target={APT}"


def runtime_instructions(plan: Plan) -> Iterator[Any]:
    """Yield the instructions of the image's environment."""
    config = plan.config
    if config.env:
        yield hpccm.raw("ENV " + assignments(config.env))
    if config.labels:
        yield hpccm.raw("LABEL " + assignments(config.labels))
    yield hpccm.raw(f"WORKDIR {config.workdir}")
    yield hpccm.raw(f"CMD {json.dumps(list(config.cmd))}")


def assignments(values: Mapping[str, str]) -> str:
    """Return ``NAME="value"``, one a line. Raises SpecError for a name or value that no Containerfile can hold: a base
    image may have any."""
    for name in values:
        if not NAME.fullmatch(name):
            raise SpecError(f"a variable or label is named {name[:80]!r}", hint="take it out of the base image")
    return NEXT.join(f"{name}={quote_literal(value)}" for name, value in values.items())


def quote_literal(value: str) -> str:
    """Return a quoted word in which nothing expands. Raises SpecError for a line break, which no Containerfile can
    hold."""
    if "\n" in value or "\r" in value:
        raise SpecError(f"the value {value!r} has a line break", hint="write it on one line")
    return '"' + re.sub(r'([\\"$])', r"\\\1", value) + '"'
