"""The command line of torchrun, in the forms that start ranks with it."""

from __future__ import annotations

from envbuild.core.errors import SpecError
from envbuild.launch.model import Plan
from envbuild.launch.programs import has_torch, program_of, starts_ranks


def torchrun_words(plan: Plan) -> list[str]:
    """Return torchrun with its number of nodes and workers. Raises SpecError if the command starts ranks itself, or if
    the image has no torch. torchrun starts Python files; with --no_python any program."""
    if starts_ranks(plan.command):
        hint = "name the Python file: --as torchrun -- train.py --epochs 2"
        raise SpecError(f"'{program_of(plan.command)}' starts the ranks of its node itself", hint)
    if plan.image.built and not may_have_torch(plan):
        raise SpecError(f"{plan.image.name} contains no torch, so it has no torchrun", hint="use --as srun")
    nodes = [f"--nnodes={plan.nodes}", f"--nproc_per_node={plan.workers}"]
    if plan.nodes == 1:
        nodes.insert(0, "--standalone")
    first = plan.command[0]
    return ["torchrun", *nodes, *([] if first.endswith(".py") or first == "-m" else ["--no_python"])]


def may_have_torch(plan: Plan) -> bool:
    """Return whether an image has torch; a third-party image is taken for one that does."""
    known = plan.image.layers or plan.image.versions
    return not known or has_torch(plan.image)
