"""The configure stage of a pair: its unit as it is planned, without network, up to the first command that compiles."""

from __future__ import annotations

import os
import re
from dataclasses import replace

from envbuild.build.engines.base import BuildOptions
from envbuild.build.engines.embedded.engine import Embedded
from envbuild.build.plan.planner import make_plan
from envbuild.build.plan.units import Plan, Product, Unit
from envbuild.build.steps import Step
from envbuild.core.console import SilentReporter
from envbuild.core.errors import EnvbuildError
from envbuild.lock.draft import draft_from_request
from envbuild.lock.fetch import fetch
from envbuild.lock.make_lock import make_lock
from envbuild.lock.request import lock_request
from envbuild.lock.unit_names import VENV_CORE, VENV_TOOLKIT
from envbuild.spec import target as targets
from envbuild.spec.recipe import VENV
from envbuild.spec.resolve import resolve
from tests.golden.test_recipes import PROJECT
from tests.rehearsal.pairs import Pair
from tests.rehearsal.sources import Upstream

NEXT = " && \\\n    "  # between the commands of a step
COMPILE = ("make", "cmake --build", "ninja")
WHEEL = '"$UV" build'
EGG_INFO = f"if test -f setup.py; then {VENV}/bin/python setup.py -q egg_info; fi"
RESULT = "/opt/rehearsed"  # the folder of a unit that has none, of wheels
CONFIGURES = re.compile(r"(^|[ /])(configure|autogen\.\w+|cmake)( |$)")
WITH_HEAVY = "ENVBUILD_REHEARSAL_HEAVY"  # set: units of several gigabytes, or of minutes, are built below the pair's
HEAVY = {VENV_CORE: "torch", VENV_TOOLKIT: "the CUDA toolkit"}


def configure(pair: Pair, upstream: Upstream) -> str:
    """Return ``passed``, or the reason why the stage was not run. Raises EnvbuildError if it fails."""
    spec = pair.spec()
    try:
        resolution = resolve(spec, targets.load_target(spec.target, PROJECT))
    except EnvbuildError as error:
        return f"not run: the sample image is refused ({error.message})"
    request = lock_request(resolution)
    if not os.environ.get(WITH_HEAVY) and (why := heavy(make_plan(resolution, draft_from_request(request)), pair.name)):
        return f"not run: {why}"
    store, reporter = upstream.store, SilentReporter()
    lock = make_lock(request, upstream.site, store, reporter)
    fetch(lock, store, upstream.site, reporter)
    built = Embedded(()).build(stage_plan(make_plan(resolution, lock), pair.name), store, reporter, BuildOptions())
    assert pair.name in (*built.built, *built.reused), f"unit {pair.name} did not run"
    return "passed"


def heavy(plan: Plan, name: str) -> str:
    """Return what makes the stage of the unit `name` expensive; "" for one that takes a minute."""
    units = [unit for unit in stage_plan(plan, name).units if unit.name != name]
    if below := [what for unit, what in HEAVY.items() if unit in {other.name for other in units}]:
        return f"{' and '.join(below)} {'are' if len(below) > 1 else 'is'} below its unit ({WITH_HEAVY})"
    if compiled := [unit.name for unit in units if cut(unit) != unit]:
        return f"{', '.join(compiled)} would be compiled first ({WITH_HEAVY})"
    return ""


def stage_plan(plan: Plan, name: str) -> Plan:
    """Return the plan of the unit `name` and what it needs, with its steps up to the first that compiles."""
    needed = {name}
    for unit in reversed(plan.units):
        if unit.name in needed:
            needed |= set(plan.needs(unit))
    units = [stage(unit) if unit.name == name else unit for unit in plan.units if unit.name in needed]
    return replace(plan, units=tuple(units))


def stage(unit: Unit) -> Unit:
    """Return the unit with the steps of its configure stage, as a layer of folders that are empty then.

    A unit of wheels is one too: it has no wheel yet, and an engine builds only what ends in the image."""
    keep = unit.keep or (RESULT,)
    steps = (*cut(unit).steps, Step(f"mkdir -p {' '.join(keep)}"))
    return replace(unit, steps=steps, keep=keep, product=Product.LAYER, in_image=True)


def cut(unit: Unit) -> Unit:
    """Return the unit with its steps up to the first command that compiles; the unit itself if it has none."""
    steps: list[Step] = []
    for step in unit.steps:
        commands = step.command.split(NEXT)
        end = next((at for at, text in enumerate(commands) if text.startswith((*COMPILE, WHEEL))), None)
        if end is None:
            steps.append(step)
            continue
        before = [text for earlier in steps for text in earlier.command.split(NEXT)] + commands[:end]
        last = instead(commands[end], any(map(CONFIGURES.search, before)))
        return replace(unit, steps=(*steps, Step(NEXT.join([*commands[:end], *last]), step.title)))
    return unit


def instead(command: str, configured: bool) -> list[str]:
    """Return what runs in place of a command that compiles: of a wheel its metadata; of makefiles that no configure
    script has written what make would do."""
    if command.startswith(WHEEL):
        return [EGG_INFO]
    if command.startswith("make ") and not configured:
        return [f"make -n {command.removeprefix('make ')} > /dev/null"]
    return []
