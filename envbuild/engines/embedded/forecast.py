"""What a build will take, before it begins: whether one compile job fits into memory at all, and how long units took
where they were measured."""

from __future__ import annotations

from collections.abc import Iterable

from envbuild.engines.embedded import capacity
from envbuild.errors import EngineError, Finding
from envbuild.plan.units import Unit

SAID_FROM = 2.0  # minutes; what is shorter needs no forecast


def check_memory(units: Iterable[Unit], memory: float) -> None:
    """Raises EngineError for every unit of which one compile job alone needs more than `memory` bytes."""
    findings = [
        Finding(
            f"{unit.name} cannot be built here, because one of its compile jobs takes {unit.memory_gb:g} GB "
            f"and this machine, or its cgroup, has {memory / capacity.GB:.1f} GB to give",
            hint="build on a larger machine and share its store, or raise the memory of the job (srun --mem)",
        )
        for unit in units
        if unit.memory_gb * capacity.GB > memory
    ]
    if findings:
        raise EngineError.of(findings)


def minutes(unit: Unit, cores: int, memory: float) -> float:
    """Minutes that a unit will take on so many `cores` and bytes of `memory`, if this machine is like the one on which
    its CPU time was measured; 0 where nobody did."""
    return unit.cpu_minutes / capacity.compile_jobs(cores, memory, unit.memory_gb)


def words(units: Iterable[Unit], cores: int, memory: float) -> str:
    """The forecast for a person, or "" when there is nothing worth saying."""
    found = {unit.name: minutes(unit, cores, memory) for unit in units}
    long = {name: value for name, value in found.items() if value >= SAID_FROM}
    if not long:
        return ""
    each = ", ".join(f"{name} {value:.0f}" for name, value in sorted(long.items(), key=lambda item: -item[1]))
    return f"about {sum(found.values()):.0f} min of compiling ({each}); a run that is stopped goes on at the next unit"
