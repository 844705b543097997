"""The configure stage of a pair: its unit as it is planned, without network, up to the first command that compiles."""

from __future__ import annotations

import os
from dataclasses import replace

from envbuild.build.engines.base import BuildOptions
from envbuild.build.engines.embedded.engine import Embedded
from envbuild.build.plan.planner import make_plan
from envbuild.build.plan.units import Plan, Unit
from envbuild.build.steps import Step
from envbuild.core.console import SilentReporter
from envbuild.core.errors import EnvbuildError
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
WITH_HEAVY = "ENVBUILD_REHEARSAL_HEAVY"  # set: units of several gigabytes are built below those that need them
HEAVY = {VENV_CORE: "torch", VENV_TOOLKIT: "the CUDA toolkit"}


def configure(pair: Pair, upstream: Upstream) -> str:
    """Return ``passed``, or the reason why the stage was not run. Raises EnvbuildError if it fails."""
    spec = pair.spec()
    try:
        resolution = resolve(spec, targets.load_target(spec.target, PROJECT))
    except EnvbuildError as error:
        return f"not run: the sample image is refused ({error.message})"
    request = lock_request(resolution)
    made = spec.recipes[pair.name]
    below = [what for name, what in HEAVY.items() if name in request.units and request.units[name].python]
    if below and (made.on_venv or made.on_toolkit) and not os.environ.get(WITH_HEAVY):
        return f"not run: {' and '.join(below)} are below its unit ({WITH_HEAVY})"
    if compiled := [name for name in made.after if name in resolution.compiled]:
        return f"not run: {', '.join(compiled)} would be compiled first"
    store, reporter = upstream.store, SilentReporter()
    lock = make_lock(request, upstream.site, store, reporter)
    fetch(lock, store, upstream.site, reporter)
    Embedded(()).build(stage_plan(make_plan(resolution, lock), pair.name), store, reporter, BuildOptions())
    return "passed"


def stage_plan(plan: Plan, name: str) -> Plan:
    """Return the plan of the unit `name` and what it needs, with its steps up to the first that compiles."""
    needed = {name}
    for unit in reversed(plan.units):
        if unit.name in needed:
            needed |= set(plan.needs(unit))
    units = [cut(unit) if unit.name == name else unit for unit in plan.units if unit.name in needed]
    return replace(plan, units=tuple(units))


def cut(unit: Unit) -> Unit:
    steps: list[Step] = []
    for step in unit.steps:
        commands = step.command.split(NEXT)
        end = next((at for at, text in enumerate(commands) if text.startswith((*COMPILE, WHEEL))), None)
        if end is None:
            steps.append(step)
            continue
        stage = [EGG_INFO] if commands[end].startswith(WHEEL) else []
        steps.append(Step(NEXT.join([*commands[:end], *stage]), step.title))
        break
    return replace(unit, steps=(*steps, Step(f"mkdir -p {' '.join(unit.keep)}")) if unit.keep else tuple(steps))
