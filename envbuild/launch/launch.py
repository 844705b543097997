"""Launch: an image, its target, the site and the command line → a command, a script or a file that starts the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from envbuild.core.errors import Finding, SpecError
from envbuild.core.yaml_reader import one_of, short
from envbuild.launch.client_queries import ClientQueries
from envbuild.launch.clients import Clients, check_partition, find_clients
from envbuild.launch.forms import FORMS
from envbuild.launch.image_sources import find_image
from envbuild.launch.model import Kind, LaunchImage, Plan, Request, Written
from envbuild.launch.plan import plan_launch
from envbuild.spec.target import Target, load_target
from envbuild.spec.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch: its plan, what was written from it, and whether it is a job of Slurm."""

    plan: Plan
    written: Written
    slurm: bool


@dataclass(frozen=True, slots=True)
class Prepared:
    """The form, the image, its target and the clients of a launch."""

    module: Any
    image: LaunchImage
    target: Target
    clients: Clients


def launch_image(name: str, form: str, request: Request, workspace: Workspace) -> Launch:
    """Return the launch of an image NAME, FILE or REF in a form of `FORMS`.

    Raises SpecError for a contradiction, ConflictError if the site's driver is too old, and what reading the
    image raises.
    """
    found = prepare_launch(name, form, request, workspace)
    kind: Kind = found.module.KIND
    plan = plan_launch(found.image, found.target, workspace.site, found.clients, request, kind)
    for line in plan.warnings:
        workspace.reporter.warn(line)
    write: Callable[[Plan], Written] = found.module.write
    return Launch(plan, write(plan), kind.slurm)


def prepare_launch(name: str, form: str, request: Request, workspace: Workspace) -> Prepared:
    """Return the form, the image, its target and the clients. Raises as `launch_image`."""
    module = load_form(form)
    kind: Kind = module.KIND
    check_hosts(form, request, needed=kind.hosts)
    if not kind.slurm:
        check_no_slurm_options(form, request)
    image = find_image(name, workspace, request.target)
    target = load_target(image.target, workspace.project)
    site = workspace.site
    clients = Clients(site.slurm)
    if kind.slurm:
        query = ClientQueries(workspace.reporter)
        clients = find_clients(site.slurm, query)
        if kind.pyxis:
            clients.require_pyxis()
        check_partition(request.partition or site.nodes_of(target.name).partition, query)
    return Prepared(module, image, target, clients)


def load_form(name: str) -> Any:
    """Return the module of an output form. Raises SpecError for an unknown one."""
    if name not in FORMS:
        raise SpecError(f"--as {short(name)} is not known", hint=one_of(name, FORMS, "the forms are"))
    return import_module(f"envbuild.launch.forms.{name}")


def check_hosts(form: str, request: Request, *, needed: bool) -> None:
    """Raise SpecError if a form needs the names of the nodes, and they are not given, or not as many as nodes."""
    if needed and request.nodes > 1 and not request.hosts:
        hint = "type --hosts NAME,NAME or --hostfile FILE with one name a line"
        raise SpecError(f"--as {form} with {request.nodes} nodes needs their names: no scheduler knows them", hint)
    if request.hosts and len(request.hosts) != request.nodes:
        message = f"{len(request.hosts)} hosts are named, and the job has {request.nodes} nodes"
        raise SpecError(message, hint=f"type -N {len(request.hosts)}, or name {request.nodes} hosts")
    if request.hosts and not needed:
        raise SpecError(f"--hosts has no meaning with --as {form}: Slurm or Kubernetes chooses nodes", "leave it out")


def check_no_slurm_options(form: str, request: Request) -> None:
    """Raise SpecError if the request has options that a form without Slurm would ignore."""
    stated = {"--time": request.time, "--partition": request.partition, "--cpus-per-task": request.cpus_per_task}
    why = f"has no meaning with --as {form}: it is an option of Slurm"
    if findings := [Finding(f"{option} {why}", hint="leave it out") for option, value in stated.items() if value]:
        raise SpecError.of(findings)
