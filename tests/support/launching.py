"""Launches for tests: images in memory on shipped or written targets, and those of shipped specs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.store.store import Store
from envbuild.launch.clients import Clients
from envbuild.launch.explain import plan_data
from envbuild.launch.launch import Launch, launch_image, load_form
from envbuild.launch.model import LaunchImage, Plan, Request
from envbuild.launch.plan import plan_launch
from envbuild.net.site import Site
from envbuild.net.site_file import read_site
from envbuild.net.slurm_site import Slurm
from envbuild.spec.project import Project
from envbuild.spec.target import Target, load_target
from envbuild.spec.workspace import Workspace, with_drivers
from tests.support import packs
from tests.support.squashfs_image import write_image

ROOT = Path(__file__).parents[2]
SLURM = Slurm(version="23.11.4", pyxis="0.20.0", enroot="4.0.1", pmix=("pmix", "pmix_v4"))
ENV = {"PATH": "/opt/venv/bin:/usr/bin", "PYTORCH_VERSION": "2.15.0", "LANG": "C.UTF-8"}
TORCH_LAYERS = ("cuda", "ucx", "nccl", "ucc", "torch", "openmpi", "nccl-tests")


def torch_image(**changes: Any) -> LaunchImage:
    """Return an image with PyTorch, NCCL, UCX and MPI."""
    image = LaunchImage(
        name="net",
        target="azure-ndv4",
        arch="amd64",
        env=ENV,
        versions={"torch": "2.15.0", "nccl": "2.30.7"},
        layers=TORCH_LAYERS,
        squashfs="/fs/images/net.sqsh",
        reference="docker://registry.example/team/net:1",
        docker="net:0123456789ab",
    )
    return replace(image, **changes)


def shipped_target(name: str) -> Target:
    return load_target(name, Project())


def site(**changes: Any) -> Site:
    """Return a site that states its clients."""
    return Site(store=Path("/nonexistent"), slurm=changes.pop("slurm", SLURM), **changes)


def make_plan(
    command: Sequence[str] = ("python", "train.py"),
    *,
    form: str = "srun",
    image: LaunchImage | None = None,
    target: Target | None = None,
    at: Site | None = None,
    **request: Any,
) -> Plan:
    """Return the plan of a launch of an image in memory."""
    image, at = image or torch_image(), at or site()
    target = target or shipped_target(image.target)
    wanted = Request(command=tuple(command), **request)
    return plan_launch(image, target, at, Clients(at.slurm), wanted, load_form(form).KIND)


def written(plan: Plan, form: str) -> str:
    """Return the text of a form."""
    text: str = load_form(form).write(plan).text
    return text


def write_launch(command: Sequence[str] = ("python", "train.py"), *, form: str = "srun", **options: Any) -> str:
    """Return the text of a launch of an image in memory."""
    return written(make_plan(command, form=form, **options), form)


def variables(plan: Plan) -> dict[str, str]:
    return {item.name: item.value for item in plan.env}


def option_values(plan: Plan) -> dict[str, str]:
    """Return name → value of the options of job, step and container."""
    options = (*plan.job, *plan.step, *plan.container)
    return {item.name: item.text.partition("=")[2] for item in options}


def answer_of(plan: Plan, form: str) -> Mapping[str, Any]:
    """Return what the command prints about a plan, and the form."""
    kind = load_form(form).KIND
    return {"text": written(plan, form), **plan_data(plan, slurm=kind.slurm)}


def edf_of(script: str) -> str:
    """Return the TOML that a script of the form edf writes."""
    return script.partition("<<'END_OF_EDF'\n")[2].partition("\nEND_OF_EDF\n")[0]


def check_script(text: str, folder: Path) -> None:
    """Check a script with bash and with shellcheck; skip without the latter."""
    script = folder / "job.sh"
    script.write_text(text if text.startswith("#!") else f"#!/bin/bash\n{text}")
    subprocess.run(["bash", "-n", script], check=True)
    checker = shutil.which("shellcheck") or shutil.which(str(Path(sys.executable).parent / "shellcheck"))
    if not checker:
        pytest.skip("shellcheck is not installed: pip install '.[test]'")
    # 2016: words for the shell of a container; 2046: names of variables, several words
    done = subprocess.run([checker, "-e", "2016,2046", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def write_squashfs(folder: Path, files: Mapping[str, str]) -> Path:
    """Write a squashfs file with these texts; return its path."""
    above = sorted({str(parent) for name in files for parent in Path(name).parents} - {"."})
    members = [*(packs.folder(name.encode()) for name in above)]
    members += [packs.file(name.encode(), text.encode()) for name, text in sorted(files.items())]
    path = folder / "net.sqsh"
    write_image(packs.packs(folder, members), path, epoch=0)
    return path


def shipped_workspace(text: str, folder: Path) -> Workspace:
    """Return a workspace with the images of the checkout and a site file with `text`."""
    path = folder / "site.yaml"
    path.write_text(f"schema: 1\nstore: {folder}/store\n{text}")
    found = read_site(path)
    project = with_drivers(Project.find(ROOT), found)
    return Workspace(project, found, Store(found.store), SilentReporter())


def launch_shipped(name: str, form: str, text: str, folder: Path, command: Sequence[str], **request: Any) -> Launch:
    """Return the launch of a shipped image with a site file that contains `text`."""
    return launch_image(name, form, Request(command=tuple(command), **request), shipped_workspace(text, folder))
