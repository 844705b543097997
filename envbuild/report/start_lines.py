"""The lines of a report with which a job starts the image, composed as ``envbuild launch`` does.

No program of this machine is queried, so that the same image and site have the same report: what the site does not
state is taken for the oldest clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from envbuild.core.console import SilentReporter
from envbuild.core.errors import EnvbuildError
from envbuild.core.shell import shell_word
from envbuild.launch.clients import Clients
from envbuild.launch.image_sources import find_image
from envbuild.launch.launch import load_form
from envbuild.launch.model import LaunchImage, Request
from envbuild.launch.plan import plan_launch
from envbuild.launch.programs import has_torch
from envbuild.report.model import StartLine
from envbuild.spec.target import Target, load_target
from envbuild.spec.workspace import Workspace

FORMS = ("srun", "docker")
NODES = 2  # where there is a fabric
EXAMPLE = "/a/shared/folder"  # where no folder is known that compute nodes read


def start_lines(name: str, workspace: Workspace) -> tuple[StartLine, ...]:
    """Return a line for each form, or the reason why it cannot be written: nothing here is an error of the report."""
    workspace = workspace.with_reporter(SilentReporter())  # the matrix part has what a launch warns about
    try:
        image = find_image(name, workspace)
        target = load_target(image.target, workspace.project)
    except EnvbuildError as error:
        return (StartLine(FORMS[0], "", "", reason_of(error)),)
    return tuple(lines_of(name, image, target, workspace))


def lines_of(name: str, image: LaunchImage, target: Target, workspace: Workspace) -> Iterator[StartLine]:
    """Yield the line of each form."""
    command = example_command(image, target)
    clients = Clients(workspace.site.slurm)
    note = ""
    if not image.squashfs and not image.reference:
        note = f"the path is an example: {'; '.join(filter(None, image.lacks_path))}"
        image = replace(image, squashfs=f"{EXAMPLE}/{image.name}.sqsh")
    for form in FORMS:
        module = load_form(form)
        nodes = NODES if target.fabric in ("infiniband", "efa") and not module.KIND.hosts else 1
        request = Request(command=command, nodes=nodes)
        typed = " ".join(["envbuild launch", shell_word(name), *(["-N 2"] if nodes > 1 else []), f"--as {form} -- …"])
        try:
            text = module.write(plan_launch(image, target, workspace.site, clients, request, module.KIND)).text
        except EnvbuildError as error:
            yield StartLine(form, "", typed, reason_of(error))
        else:
            reasons = (image.before, note if module.KIND.pyxis else "")
            yield StartLine(form, str(text).rstrip("\n"), typed, "; ".join(filter(None, reasons)))


def example_command(image: LaunchImage, target: Target) -> tuple[str, ...]:
    """Return a command that the image has: a benchmark of its collectives, PyTorch, or a shell."""
    if image.has("nccl-tests"):
        return ("all_reduce_perf", "-b", "16M", "-e", "8G", "-f", "2", "-g", "1")
    if has_torch(image):
        return ("python", "train.py")
    if image.has("mpi4py"):
        return ("python3", "-c", "from mpi4py import MPI; print(MPI.COMM_WORLD.rank)")
    return ("sh", "-c", "hostname")


def reason_of(error: EnvbuildError) -> str:
    """Return the first finding of an error on one line."""
    return f"{error.message}; {error.hint}" if error.hint else error.message
