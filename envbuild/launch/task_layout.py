"""Tasks of a job: how many on a node, with how many GPUs and CPUs each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envbuild.core.errors import Finding, SpecError
from envbuild.launch.model import Option, Request
from envbuild.launch.programs import starts_ranks
from envbuild.net.numa import Numa
from envbuild.spec.target import Target

MAX_NODES = 100_000


@dataclass(frozen=True, slots=True)
class TaskLayout:
    """Tasks and GPUs of a node, CPUs of a task (0: not known). `whole`: the job has all GPUs of its nodes. `workers`:
    what torchrun starts on a node."""

    tasks_per_node: int
    gpus: int
    cpus_per_task: int
    cpus_owner: str
    tasks_because: str
    whole: bool
    workers: int
    slurm_gpus: bool

    def options(self) -> list[Option]:
        """Return the options of the job for them."""
        found = [Option(f"--ntasks-per-node={self.tasks_per_node}", "launch", self.tasks_because)]
        if self.slurm_gpus:
            found.append(Option(f"--gpus-per-node={self.gpus}", "target", "GPUs of a node"))
        if self.cpus_per_task:
            because = "the CPUs of a node, shared by its tasks"
            found.append(Option(f"--cpus-per-task={self.cpus_per_task}", self.cpus_owner, because))
        return found


def lay_out_tasks(
    target: Target, numa: Numa | None, request: Request, command: Sequence[str], *, one: bool = False
) -> TaskLayout:
    """Return the tasks of a job. `one`: the form starts one task on a node. Raises SpecError with all mistakes."""
    findings: list[Finding] = []
    if not 0 < request.nodes <= MAX_NODES:
        findings.append(Finding(f"-N {request.nodes} is not a number of nodes", hint="type -N 1 or more"))
    gpus = request.gpus or target.gpus
    if request.gpus and request.gpus > target.gpus:
        there = f"has {target.gpus}" if target.gpus else "has no GPU"
        hint = f"type --gpus {target.gpus} or less, and -N for more nodes" if target.gpus else "leave out --gpus"
        findings.append(
            Finding(f"--gpus {request.gpus}: a node of target '{target.name}' {there}", hint=hint),
        )
    tasks, because = default_tasks(target, gpus, command, one=one)
    if request.tasks_per_node:
        tasks, because = request.tasks_per_node, "--tasks-per-node"
        if target.gpus and not target.launch.tasks_per_node and tasks > gpus:
            message = f"--tasks-per-node {tasks}: the job has {gpus} GPUs on a node, and each task needs one of its own"
            hint = f"type --tasks-per-node {gpus} or less, and -N for more nodes"
            findings.append(Finding(message, hint=hint))
    if findings:
        raise SpecError.of(findings)
    whole = gpus == target.gpus
    cpus, owner = cpus_per_task(target, numa, request, tasks, gpus)
    workers = target.launch.workers or gpus or tasks
    return TaskLayout(tasks, gpus, cpus, owner, because, whole, workers, bool(target.sm))


def default_tasks(target: Target, gpus: int, command: Sequence[str], *, one: bool) -> tuple[int, str]:
    """Return how many tasks a node gets, and why."""
    if one:
        return 1, "torchrun starts the ranks of its node"
    if target.launch.tasks_per_node:
        return target.launch.tasks_per_node, f"tasks_per_node of target {target.name}"
    if starts_ranks(command):
        return 1, "the command starts the ranks of its node"
    return (gpus, "one task for each GPU") if gpus else (1, "one task on each node: the target has no GPU")


def cpus_per_task(target: Target, numa: Numa | None, request: Request, tasks: int, gpus: int) -> tuple[int, str]:
    """Return how many CPUs a task gets (0: not known), and who states it."""
    if request.cpus_per_task:
        return request.cpus_per_task, "command line"
    usual = target.launch.tasks_per_node or target.gpus or 1
    total = numa.nodes * numa.cpus if numa else target.launch.cpus_per_task * usual
    share = total * gpus // target.gpus if target.gpus else total
    return share // tasks, "target" if numa is None or numa is target.numa else "site"
