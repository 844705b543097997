"""One step of the tiers gpu and fabric as a job: the launch of a command whose ranks run `envbuild.gpu`.

The program is the standard input of the job, which srun and docker pass to each rank: no folder is shared."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from envbuild.core.programs import TimeoutExpired, run_program
from envbuild.core.text import printable
from envbuild.gpu.fabric_checks import PAIR, Step
from envbuild.gpu.parts import read_parts
from envbuild.launch.launch import Prepared
from envbuild.launch.model import LaunchImage, Option, Plan, Request
from envbuild.launch.plan import plan_launch
from envbuild.launch.programs import has_torch
from envbuild.launch.script_call import script_call
from envbuild.net.site import Site
from envbuild.spec.recipe import VENV
from envbuild.verify.run_inspector import PYTHON

FORMS = ("srun", "docker")
BECAUSE = "the check that a network which does not exist is an error"
OVERHEAD = 600  # seconds of a job beside its program: it waits for nodes, and pyxis unpacks the image
NODE_LIMIT = 3600  # seconds of all checks of one node


@dataclass(frozen=True, slots=True)
class Trial:
    """A job: the script that starts it, its ranks, and the seconds after which it is ended."""

    text: str
    ranks: int
    limit: float
    plan: Plan


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a job: rank → document, of those that arrived whole; and why there is none."""

    documents: dict[int, Any]
    fault: str


def python_of(image: LaunchImage) -> str:
    """Return the Python of an image that runs the checks."""
    if has_torch(image) and image.layers:
        return f"{VENV}/bin/python"
    return PYTHON if image.layers else "python3"


def node_trial(prepared: Prepared, site: Site, *, root: bool) -> Trial:
    """Return the job of one node: one rank that has all GPUs. The network is NCCL's choice: it is not checked here.

    root: whether the user is root in the container.
    """
    request = Request(("own", "node"), tasks_per_node=1, mpi=False, root=root)
    plan = plan_launch(prepared.image, prepared.target, site, prepared.clients, request, prepared.module.KIND)
    env = tuple(item for item in plan.env if item.name != "NCCL_NET")
    plan = replace(plan, env=env, command=(python_of(prepared.image), "-", "node"))
    return written(plan, prepared, NODE_LIMIT)


def step_trial(step: Step, prepared: Prepared, site: Site, nodes: int, *, root: bool) -> Trial:
    """Return the job of a step on several nodes. Raises as `plan_launch`."""
    request = Request(
        step.words,
        nodes=nodes,
        tasks_per_node=1 if step.one else 0,
        env=step.env,
        because=BECAUSE if step.env else "",
        mpi=step.mpi,
        root=root,
    )
    plan = plan_launch(prepared.image, prepared.target, site, prepared.clients, request, prepared.module.KIND)
    if step.kind == PAIR:
        plan = replace(plan, rendezvous="address")  # the client connects to the first node
    role = ("--role", step.kind) if step.kind == PAIR else ()
    words = (python_of(prepared.image), "-", "rank", "--limit", f"{step.limit:g}", *role, "--", *step.words)
    return written(replace(plan, command=words), prepared, step.limit)


def written(plan: Plan, prepared: Prepared, limit: float) -> Trial:
    """Return the job of a plan."""
    if prepared.module.KIND.docker:
        reads = Option("--interactive", "launch", "the program is read from standard input")
        devices = tuple(item for item in plan.docker if is_present(item.text))
        plan = replace(plan, docker=(*devices, reads))
    return Trial(prepared.module.write(plan).text, plan.ranks, limit + OVERHEAD, plan)


def is_present(option: str) -> bool:
    """Return whether a device of docker run exists here: a machine with one GPU has no fabric."""
    name, _, device = option.partition("=")
    return name != "--device" or Path(device.partition(":")[0]).exists()


def choose_form(form: str, forms: Sequence[str] = FORMS) -> str:
    """Return the form that starts jobs here: the requested one, or one of `forms` that is installed; empty: none is."""
    return form or next((name for name in forms if shutil.which(name)), "")


def run_trial(trial: Trial, form: str, program: str, watch: Callable[[str], object] | None = None) -> Ended:
    """Run a job to its end. watch: called with the last line that it reports."""
    if not shutil.which(form):
        return Ended({}, f"{form} is not installed here")
    try:
        command, env = script_call(trial.text)
        done = run_program(command, env=env, content=program.encode(), text=True, timeout=trial.limit, watch=watch)
    except TimeoutExpired:
        return Ended({}, f"the job did not end within {trial.limit:.0f} s")
    documents, others = read_parts(done.stdout, trial.ranks)
    lines = [line for line in f"{others}\n{done.stderr}".splitlines() if line.strip()]
    why = next((line for line in lines if re.search(r"\berror\b", line, re.IGNORECASE)), lines[-1] if lines else "")
    last = printable(why)[:300] or "it printed nothing"
    fault = "" if documents else f"the job reported nothing (exit code {done.returncode}): {last}"
    return Ended(documents, fault)
