"""Explanation of a launch: who owns each variable and each option, and why."""

from __future__ import annotations

from typing import Any

from envbuild.core.text import flow, printable
from envbuild.launch.model import RENDEZVOUS, Option, Plan


def explain(plan: Plan, *, slurm: bool) -> str:
    """Return the explanation as lines."""
    lines = ["variables"]
    for item in plan.env:
        lines.append(f"  {item.name}={flow(item.value)}")
        lines.append(f"    {item.owner}: {printable(item.because) if item.because else 'no reason is given'}")
        lines += [f"    instead of {flow(value)} of the {owner}" for owner, value in item.replaces]
    if not plan.env:
        lines.append("  none")
    for title, options in option_groups(plan, slurm=slurm):
        lines += [
            title,
            *(line for item in options for line in (f"  {item.text}", f"    {item.owner}: {printable(item.because)}")),
        ]
    if plan.rendezvous and (slurm or plan.rendezvous == "address"):  # elsewhere torchrun sets what ranks need
        names = RENDEZVOUS[plan.rendezvous]
        lines += [
            "ranks",
            f"  {', '.join(names)}",
            "    launch: PyTorch's ranks need them, and no hook of the site sets them",
        ]
    for step, because in plan.target.launch.host_steps.items():
        lines += ["once on each node, as root", f"  {step}", f"    target: {printable(because)}"]
    return "\n".join([*lines, *(f"expected: {line}" for line in plan.expect)])


def option_groups(plan: Plan, *, slurm: bool) -> list[tuple[str, tuple[Option, ...]]]:
    """Return the options by what they belong to."""
    if not slurm:
        return [("options of docker run", plan.docker)] if plan.docker else []
    return [("options of the job", plan.job), ("options of the step", plan.step), ("container", plan.container)]


def plan_data(plan: Plan, *, slurm: bool) -> dict[str, Any]:
    """Return a plan as JSON has it."""
    return {
        "image": plan.image.name,
        "built": plan.image.built,
        "target": plan.target.name,
        "nodes": plan.nodes,
        "tasks_per_node": plan.tasks_per_node,
        "mpi": plan.mpi,
        "env": [
            {
                "name": item.name,
                "value": item.value,
                "owner": item.owner,
                "because": item.because,
                "replaces": [{"owner": owner, "value": value} for owner, value in item.replaces],
            }
            for item in plan.env
        ],
        "options": [
            {"of": title.removeprefix("options of ").removeprefix("the "), **item._asdict()}
            for title, options in option_groups(plan, slurm=slurm)
            for item in options
        ],
        "host_steps": dict(plan.target.launch.host_steps),
        "expect": list(plan.expect),
        "warnings": list(plan.warnings),
    }
