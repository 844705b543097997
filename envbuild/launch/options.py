"""Options of sbatch and srun, apart: those of the job, those of a step in it, those of the container."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from envbuild.core.distributions import has_registry
from envbuild.core.errors import SpecError
from envbuild.core.shell import shell_word
from envbuild.launch.clients import DIGESTS, Clients, older
from envbuild.launch.cpu_masks import cpu_masks, mask_option
from envbuild.launch.model import LaunchImage, Option, Request
from envbuild.launch.task_layout import TaskLayout
from envbuild.net.numa import Numa
from envbuild.net.slurm_site import NodeSettings
from envbuild.spec.target import Target

BOTH = "srun of Slurm 22.05 to 23.02 does not take it over from sbatch"
# sbatch(1) with SBATCH_EXPORT or --export sets SLURM_EXPORT_ENV for the steps of its job.
EXPORT = "the variables arrive also where SBATCH_EXPORT or SLURM_EXPORT_ENV, which some sites set, passes none"
# srun(1): SLURM_NTASKS of the allocation is --ntasks, with which --ntasks-per-node is a maximum.
TASKS = "within a job srun starts as many tasks as that has, and --ntasks-per-node is a limit alone"
MEMORY = "whole nodes are requested, and without it a job gets only Slurm's default of memory"


def job_options(
    target: Target, nodes: NodeSettings, clients: Clients, request: Request, layout: TaskLayout
) -> tuple[Option, ...]:
    """Return the options of the job."""
    slurm = clients.slurm
    asked = "command line" if request.partition else "site"
    found = [Option(f"--nodes={request.nodes}", "command line", "-N")]
    for name, value, owner in (
        ("partition", request.partition or nodes.partition, asked),
        ("account", slurm.account, "site"),
        ("qos", slurm.qos, "site"),
        ("reservation", slurm.reservation, "site"),
        ("time", request.time, "command line"),
        ("job-name", request.name, "command line"),
    ):
        if value:
            found.append(Option(f"--{name}={value}", owner, f"{name} of the {owner}"))
    found += layout.options
    if not clients.has_gpu_options():
        found = [item._replace(text=item.text.replace("--gpus-per-node=", "--gres=gpu:")) for item in found]
    own = [option for option in target.launch.job if layout.whole or option != "--exclusive"]
    found += [Option(option, "target", f"a job on nodes of {target.name}") for option in own]
    found = with_own(found, nodes.job, "an option of jobs on this site")
    names = {option.name for option in found}
    tasks = next((option.text.partition("=")[2] for option in found if option.name == "--ntasks-per-node"), "")
    if tasks.isdecimal() and not names & {"--ntasks", "-n"}:
        found.append(Option(f"--ntasks={request.nodes * int(tasks)}", "launch", TASKS))
    if "--exclusive" in names and not names & {"--mem", "--mem-per-cpu", "--mem-per-gpu"}:
        found.append(Option("--mem=0", "launch", MEMORY))
    return tuple(found)


def step_options(
    target: Target, nodes: NodeSettings, layout: TaskLayout, numa: Numa | None, pmix: str
) -> tuple[Option, ...]:
    """Return the options of the step that starts the command. `pmix`: the plugin; empty: no MPI."""
    found = [Option("--kill-on-bad-exit=1", "launch", "a rank that fails ends the others, which would wait for it")]
    if not any(option.startswith("--export=ALL") for option in nodes.job):  # with more variables, perhaps
        found.append(Option("--export=ALL", "launch", EXPORT))
    if layout.cpus_per_task:
        found.append(Option(f"--cpus-per-task={layout.cpus_per_task}", layout.cpus_owner, BOTH))
    masks = cpu_masks(numa, layout.tasks_per_node) if numa and layout.whole else ()
    if masks:
        owner = "site" if nodes.numa else "target"
        because = "each rank runs on the CPUs of the NUMA node of its GPU; computed from numa"
        found.append(Option(mask_option(masks), owner, because))
    if pmix:
        found.append(Option(f"--mpi={pmix}", "site", "image, Slurm and command have MPI"))
    found += [
        Option(option, "target", f"a step on nodes of {target.name}")
        for option in target.launch.step
        if not (masks and option.startswith("--cpu-bind"))
    ]
    return tuple(with_own(found, nodes.step, "an option of steps on this site"))


def with_own(found: Sequence[Option], own: Iterable[str], because: str) -> list[Option]:
    """Return options with those of the site, which replace options of the same name, except the command line's."""
    typed = {option.name for option in found if option.owner == "command line"}
    added = [option for text in own if (option := Option(text, "site", because)).name not in typed]
    names = {option.name for option in added}
    return [*(option for option in found if option.name not in names), *added]


def container_options(
    image: LaunchImage,
    clients: Clients,
    request: Request,
    mounts: tuple[tuple[str, str], ...],
    beats_image: tuple[str, ...],
) -> tuple[Option, ...]:
    """Return pyxis' options. `mounts`: with their owners. Raises SpecError for an image that pyxis cannot start."""
    found = [Option(f"--container-image={container_image(image, clients)}", "image", "the image")]
    if mounts:
        owners = [owner for _, owner in mounts]
        listed = ",".join(mount for mount, _ in mounts)
        because = f"mounts of {', '.join(f'the {owner}' for owner in dict.fromkeys(owners))}"
        found.append(Option(f"--container-mounts={listed}", owners[-1], because))
    if clients.has("--no-container-mount-home"):
        because = "the image's own files are used, and not those of the user's home"
        found.append(Option("--no-container-mount-home", "launch", because))
    root = "--container-remap-root" if request.root else "--no-container-remap-root"
    if clients.has(root):
        found.append(
            Option(root, "launch", "the job is started by root" if request.root else "the job is not started by root")
        )
    if beats_image and clients.has("--container-env"):
        because = "the image sets these, too, and without the option its values win"
        found.append(Option(f"--container-env={','.join(beats_image)}", "launch", because))
    return tuple(found)


def docker_options(target: Target) -> tuple[Option, ...]:
    """Return the options of docker run."""
    return tuple(Option(item, "target", f"a container on nodes of {target.name}") for item in target.launch.docker)


def container_image(image: LaunchImage, clients: Clients) -> str:
    """Return an image as pyxis reads it: a path, or ``REGISTRY#PATH:TAG``, which every enroot understands."""
    if image.squashfs:
        return image.squashfs
    if not image.reference:
        raise SpecError(*image.lacks_path)
    enroot = clients.slurm.enroot
    name = image.reference.removeprefix("docker://")
    if "@" in name and enroot and older(enroot, DIGESTS):
        hint = f"make a file of it: envbuild pull {shell_word(name)} -o image.sqsh; then launch image.sqsh"
        raise SpecError(f"enroot {enroot} does not pull by digest, which {DIGESTS} and newer do", hint)
    return name.replace("/", "#", 1) if has_registry(name) else name
