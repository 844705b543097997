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
    """Tasks and GPUs of a node, CPUs of a task (0: not known), and the options of the job for them. `whole`: the job
    has all GPUs of its nodes. `workers`: what torchrun or DeepSpeed start on a node."""

    tasks_per_node: int
    gpus: int
    cpus_per_task: int
    cpus_owner: str
    whole: bool
    workers: int
    options: tuple[Option, ...]


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
    ranks = request.tasks_per_node
    if ranks and target.gpus and not target.launch.tasks_per_node and ranks > gpus:
        message = f"--tasks-per-node {ranks}: the job has {gpus} GPUs on a node, and each task needs one of its own"
        hint = f"type --tasks-per-node {gpus} or less, and -N for more nodes"
        findings.append(Finding(message, hint=hint))
    if findings:
        raise SpecError.of(findings)
    tasks, *why = count_tasks(target, gpus, request, command, one=one)
    options = [Option(f"--ntasks-per-node={tasks}", *why)]
    if target.sm:
        why = ["command line", "--gpus"] if request.gpus else ["target", "GPUs of a node"]
        options.append(Option(f"--gpus-per-node={gpus}", *why))
    cpus, owner = cpus_per_task(target, numa, request, tasks, gpus)
    if cpus:
        options.append(Option(f"--cpus-per-task={cpus}", owner, "the CPUs of a node, shared by its tasks"))
    share = target.launch.workers * gpus // target.gpus if target.gpus else target.launch.workers
    workers = ranks or share or gpus or tasks
    return TaskLayout(tasks, gpus, cpus, owner, gpus == target.gpus, workers, tuple(options))


def count_tasks(
    target: Target, gpus: int, request: Request, command: Sequence[str], *, one: bool
) -> tuple[int, str, str]:
    """Return how many tasks a node gets, who states it, and why."""
    if one:
        return 1, "launch", "torchrun starts the ranks of its node"
    if request.tasks_per_node:
        return request.tasks_per_node, "command line", "--tasks-per-node"
    if target.launch.tasks_per_node:
        return target.launch.tasks_per_node, "target", f"tasks_per_node of target {target.name}"
    if starts_ranks(command):
        return 1, "launch", "the command starts the ranks of its node"
    if gpus:
        return gpus, "launch", "one task for each GPU"
    return 1, "launch", "one task on each node: the target has no GPU"


def cpus_per_task(target: Target, numa: Numa | None, request: Request, tasks: int, gpus: int) -> tuple[int, str]:
    """Return how many CPUs a task gets (0: not known), and who states it."""
    if request.cpus_per_task:
        return request.cpus_per_task, "command line"
    usual = target.launch.tasks_per_node or target.gpus or 1
    total = numa.nodes * numa.cpus if numa else target.launch.cpus_per_task * usual
    share = total * gpus // target.gpus if target.gpus else total
    return share // tasks, "target" if numa is None or numa is target.numa else "site"
