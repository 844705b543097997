"""One pass over a machine: every check, all programs side by side."""

from __future__ import annotations

import importlib
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from .checks import GROUPS, check_names
from .checks.efa import FI_INFO
from .checks.verbs_devices import DEVINFO
from .facts import network
from .facts.gpus import SMI, TOPOLOGY, driver_version, module_gpus, pci_gpus, wants_smi
from .facts.neuron import neuron_command, neuron_devices
from .facts.node_kind import other_kind
from .facts.place import COMPUTE, LOGIN, OTHER, find_place, is_container
from .facts.slurm import drain_reason, has_reason, node_command
from .facts.summary import machine_facts
from .host import PASS, Host
from .model import FAIL, MINOR, NOT_RUN, Need, Result, not_run, one_line, result_data
from .silent_files import FILES, unanswered
from .tools import docker, short_answers, sinfo

TARGET = "target"  # the check of the kind of the node


@dataclass(frozen=True)
class Examination:
    """The findings of one pass. `results` are in the order of `GROUPS`; `times`: seconds of each check. `has_reason`:
    whether Slurm already has a reason for which this node gets no jobs; `drained_for`: that of a drain alone.
    `log_alone`: whether the results are those of a log, and none of this machine."""

    facts: dict[str, Any]
    need: Need
    results: tuple[Result, ...]
    seconds: float = 0.0
    times: Mapping[str, float] = field(default_factory=dict)
    has_reason: bool = False
    drained_for: str = ""
    log_alone: bool = False

    @property
    def failures(self) -> list[Result]:
        return [result for result in self.results if result.status == FAIL]

    @property
    def serious(self) -> list[Result]:
        """The failures that decide the exit code: all but minor ones."""
        return [result for result in self.failures if result.severity != MINOR]

    @property
    def counts(self) -> dict[str, int]:
        found = Counter(result.status for result in self.results)
        return {status: found.get(status, 0) for status in ("pass", FAIL, NOT_RUN)}

    @property
    def unknown(self) -> list[Result]:
        """The checks that did not run, of which something is here to judge."""
        return [result for result in self.results if result.status == NOT_RUN and result.applies]

    def with_results(self, results: list[Result]) -> Examination:
        """Return the same with more results."""
        return replace(self, results=(*self.results, *results))

    def with_log(self, results: list[Result]) -> Examination:
        """Return the same with the results of a job's log. A machine that runs no such jobs is not what the log is
        about, and its results are left out: a login node, or one without accelerators and Slurm."""
        has_devices = (
            self.facts["nvidia"]["on_bus"] or self.facts["nvidia"]["driver"] or self.facts["neuron"]["devices"]
        )
        place = self.facts["place"]
        if place == LOGIN or (place == OTHER and not has_devices):
            return replace(self, results=tuple(results), log_alone=True)
        return self.with_results(results)

    def data(self) -> dict[str, Any]:
        """Return all as JSON has it."""
        return {
            "facts": self.facts, "target": self.need.source, "need": asdict(self.need), "counts": self.counts,
            "results": [result_data(result) for result in self.results], "seconds": round(self.seconds, 3),
        }  # fmt: skip


def examine(host: Host, need: Need, without: Collection[str] = ()) -> Examination:
    """Run every check. `without`: the names of those that are left out, as reports have them; they did not run."""
    start = time.monotonic()
    results: list[Result] = []
    times: dict[str, float] = {}
    try:
        start_programs(host)
        judged = Need() if other_kind(host, need) else need  # another kind of node is compared with itself
        for name in check_names():
            began = time.monotonic()
            if check_title(name) in without:
                results.append(omitted(name, not_run("left out by --without")))
            elif host.is_over:
                results.append(omitted(name, not_run(f"the pass has reached its limit of {PASS:.0f} s")))
            else:
                results += run_check(name, host, need if name == TARGET else judged)
            times[check_title(name)] = time.monotonic() - began
        results += [] if FILES in without else unanswered(host)
        order = {name: number for number, name in enumerate(GROUPS)}
        results.sort(key=lambda result: (order.get(result.group, len(order)), result.check))
        facts, reason, drained = machine_facts(host), has_reason(host), drain_reason(host)
    finally:
        host.close()
    return Examination(facts, need, tuple(results), time.monotonic() - start, times, reason, drained)


def omitted(name: str, result: Result) -> Result:
    """Return the result of a check that is left out."""
    group = getattr(importlib.import_module(f".checks.{name}", __package__), "GROUP", GROUPS[0])
    return replace(result, check=check_title(name), group=group)


def unknown_checks(names: Collection[str]) -> list[str]:
    """Return the names that are not those of checks."""
    known = {FILES, *map(check_title, check_names())}
    return [name for name in names if name not in known]


def check_title(name: str) -> str:
    """Return the name of a check in reports, by that of its module."""
    return name.replace("_", "-")


def start_programs(host: Host) -> None:
    """Start the programs that may take long, before the first check waits for one."""
    if wants_smi(host):
        host.programs.start(*SMI)
        if len(models_on_bus(host)) > 1:
            host.programs.start(*TOPOLOGY)
    commands = [docker.COMMAND, short_answers.ENROOT, short_answers.SRUN_HELP, short_answers.SRUN_MPI]
    place = find_place(host)[0]
    commands += [sinfo.COMMAND] if place == LOGIN else [node_command(host)] if place == COMPUTE else []
    commands += [] if is_container(host) else [short_answers.TOOLKIT]
    if host.names(network.FOLDER):
        commands += [DEVINFO] if network.ofed_version(host) else [DEVINFO, short_answers.OFED]
    commands += [FI_INFO] if network.efa_devices(host) else []
    commands += [neuron_command(host)] if neuron_devices(host) else []
    for command in commands:
        if host.programs.find(command[0]):
            host.programs.start(*command)


def models_on_bus(host: Host) -> list[str]:
    """Return the models of the GPUs without waiting for a program."""
    return [gpu.bus for gpu in module_gpus(host)] or [gpu.slot for gpu in pci_gpus(host)]


def run_check(name: str, host: Host, need: Need) -> list[Result]:
    """Return the results of one check; an error in it is a check that did not run, also a part of the standard library
    that this Python lacks (ctypes, where it was built without libffi)."""
    group = GROUPS[0]
    try:
        module = importlib.import_module(f".checks.{name}", __package__)
        group = module.GROUP
        found = list(module.check(host, need))
    except Exception as error:  # of one check: the others are worth their results
        found = [not_run(f"the check failed: {type(error).__name__}: {error}")]
    outside = not has_part(host, need, group)
    return [
        replace(
            result, check=check_title(name), group=group, detail=one_line(result.detail),
            applies=result.applies and not (outside and result.status == NOT_RUN),
        )
        for result in found or [not_run("the check has no result")]
    ]  # fmt: skip


def has_part(host: Host, need: Need, group: str) -> bool:
    """Return whether this machine has, or is expected to have, the part that a group of checks judges."""
    if group == "GPU":
        return need.nvidia or bool(pci_gpus(host) or driver_version(host))
    if group == "Neuron":
        return need.neuron or bool(neuron_devices(host))
    return group != "Slurm" or find_place(host)[0] in (LOGIN, COMPUTE)
