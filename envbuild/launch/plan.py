"""The plan of a launch: image, target, site and request, checked against each other and composed."""

from __future__ import annotations

from collections.abc import Iterator

from envbuild.core.errors import Finding, SpecError
from envbuild.core.text import printable
from envbuild.launch.clients import Clients
from envbuild.launch.compose import compose
from envbuild.launch.expectations import expected
from envbuild.launch.fabric import fabric_settings, find_devices, plugin_warnings, uses_ucx
from envbuild.launch.model import INSIDE, RENDEZVOUS, Kind, LaunchImage, Plan, Request, Setting
from envbuild.launch.mpi import check_mpi, open_mpi_settings, pmix_plugin, pmix_settings
from envbuild.launch.node_launchers import check_launcher, few_workers
from envbuild.launch.options import container_options, docker_options, job_options, step_options
from envbuild.launch.programs import has_torch, is_mpi_command, may_be_mpi, program_of, starts_ranks
from envbuild.launch.task_layout import TaskLayout, lay_out_tasks
from envbuild.launch.time_limit import time_faults
from envbuild.net.site import Site
from envbuild.net.slurm_site import NodeSettings, job_variable_fault, mount_fault
from envbuild.spec.target import Target


def plan_launch(image: LaunchImage, target: Target, site: Site, clients: Clients, request: Request, kind: Kind) -> Plan:
    """Return the plan for a kind of form. Raises SpecError."""
    nodes = site.nodes_of(target.name)
    check_request(request, image, target)
    command = request.command
    if request.compile:
        check_compile(target, kind)
    numa = nodes.numa or target.numa
    if nodes.numa and target.gpus and len(nodes.numa.gpus) != target.gpus:
        message = f"numa of the site lists {len(nodes.numa.gpus)} GPUs, and a node of target '{target.name}' has "
        raise SpecError(f"{message}{target.gpus}", hint="correct numa in site.yaml")
    layout = lay_out_tasks(target, numa, request, command, one=kind.one_task)
    mpi = is_mpi_command(command, image) if request.mpi is None else request.mpi
    if mpi:
        check_mpi(image, command)
    pmix, doubt = pmix_plugin(clients) if mpi and kind.slurm else ("", "")
    env = compose([*claims(image, target, nodes, request, mpi=mpi, pmix=bool(pmix), apart=kind.apart)])
    values = {item.name: item.value for item in env}
    check_launcher(request, kind, values)
    hook = kind.pyxis and clients.slurm.pytorch_hook and "PYTORCH_VERSION" in image.env
    own = kind.slurm or kind.docker
    wanted = rendezvous(image, request, layout, mpi=mpi, one=kind.one_task) if own else ""
    exported = {item.name for item in env} | set(RENDEZVOUS[wanted])
    beats = tuple(sorted((exported & set(image.env)) - set(INSIDE if kind.pyxis else ())))
    mounts = (
        *((mount, "target") for mount in target.launch.mounts),
        *((mount, "site") for mount in nodes.mounts),
        *((mount, "command line") for mount in request.mounts),
    )
    doubts = (doubt,) if doubt else ()
    other = image.moved if kind.by_reference or not image.squashfs else image.other
    if kind.slurm and not mpi and request.mpi is None and may_be_mpi(command, image):
        doubts = (*doubts, f"{program_of(command)} is started without MPI; if it is a program of MPI: --mpi")
    doubts = (*doubts, *few_workers(request, layout.workers, values))
    return Plan(
        image=image,
        target=target,
        request=request,
        command=command,
        tasks_per_node=layout.tasks_per_node,
        gpus=layout.gpus,
        workers=layout.workers,
        env=env,
        beats_image=beats,
        container_env=clients.has("--container-env") or not kind.pyxis,
        rendezvous="" if hook and wanted == "ranks" else wanted,
        mpi=mpi,
        pmix=pmix,
        pyxis=kind.pyxis,
        job=job_options(target, nodes, clients, request, layout),
        step=step_options(target, nodes, layout, numa, pmix),
        container=container_options(image, clients, request, mounts, beats) if kind.slurm else (),
        docker=docker_options(target) if kind.docker else (),
        mounts=tuple(mount for mount, _ in mounts),
        name=request.name or image.name,
        rdma=nodes.rdma,
        expect=expected(target, command, request.nodes, values, whole=layout.whole),
        warnings=(
            *filter(None, (": ".join(filter(None, other)), *image.warnings, image.before)),
            *plugin_warnings(target, image),
            *missing(target, values),
            *doubts,
        ),
    )


def claims(
    image: LaunchImage, target: Target, nodes: NodeSettings, request: Request, *, mpi: bool, pmix: bool, apart: bool
) -> Iterator[Setting]:
    """Yield the variables that each owner sets. `pmix`: MPI starts by Slurm. `apart`: each rank has its container."""
    for name, value in image.env.items():
        yield Setting(name, value, "image", "the finished image has it in /etc/environment")
    devices = find_devices(target, nodes)
    yield from fabric_settings(target, image, devices, request.command, request.nodes, mpi=mpi)
    if pmix:
        yield from pmix_settings()
    if apart and uses_ucx(image):
        because = "each rank has a user namespace of its own, in which the memory of other ranks is closed below /proc"
        yield Setting("UCX_POSIX_USE_PROC_LINK", "n", "launch", because)
    if mpi:
        yield from open_mpi_settings(target, image, request.command, request.nodes)
    for name, reasoned in target.launch.env.items():
        yield Setting(name, reasoned.value, "target", reasoned.because)
    if target.launch.port:
        yield Setting("MASTER_PORT", str(target.launch.port), "target", "the port of the target's programs")
    for name, reasoned in nodes.env.items():
        yield Setting(name, reasoned.value, "site", reasoned.because)
    for name, value in request.env.items():
        yield Setting(name, value, "command line", request.because)


def rendezvous(image: LaunchImage, request: Request, layout: TaskLayout, *, mpi: bool, one: bool) -> str:
    """Return what PyTorch's ranks need to find each other: ``ranks``, ``address``, or nothing."""
    if one:
        return "address" if request.nodes > 1 else ""
    if mpi or not has_torch(image):
        return ""
    if starts_ranks(request.command):
        return "address" if request.nodes > 1 else ""
    return "ranks" if request.nodes * layout.tasks_per_node > 1 else ""


def missing(target: Target, values: dict[str, str]) -> tuple[str, ...]:
    """Return a warning for each variable that the target needs and no owner sets."""
    return tuple(
        f"{name} is not set: {because}; write env: {{{name}: VALUE}} into site.yaml, or type -e {name}=VALUE"
        for name, because in target.launch.needs.items()
        if name not in values
    )


def check_request(request: Request, image: LaunchImage, target: Target) -> None:
    """Raise SpecError with every mistake of the command line that does not depend on the form."""
    findings = time_faults(request.time)
    if not request.command:
        findings.append(Finding("no command to start", hint=f"envbuild launch {image.name} -- CMD"))
    for name, value in request.env.items():
        if fault := job_variable_fault(name):
            findings.append(Finding(f"-e: {fault}", hint="type -e NAME=VALUE"))
        elif "\0" in value:
            findings.append(Finding(f"-e {name}: its value is not a text"))
    for mount in request.mounts:
        if fault := mount_fault(mount):
            findings.append(Finding(f"--mount {fault}"))
    if image.arch and image.arch != target.arch:
        arch = printable(image.arch)  # of the image
        message = f"{image.name} is for linux/{arch}, and nodes of target '{target.name}' are linux/{target.arch}"
        findings.append(Finding(message, hint="take an image of that architecture, or --target of such nodes"))
    if findings:
        raise SpecError.of(findings)


def check_compile(target: Target, kind: Kind) -> None:
    """Raise SpecError if the target or the form has no compile step."""
    if not kind.pyxis:
        raise SpecError("--compile is a step of a Slurm job", hint="use --as srun, sbatch or torchrun")
    if not target.launch.compile:
        raise SpecError(f"--compile: target '{target.name}' has no compile step", hint="leave out --compile")
