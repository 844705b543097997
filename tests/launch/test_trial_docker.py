"""The job of one node in a real Docker Engine: the program arrives by standard input, and no GPU is never a pass."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import EnvbuildError, InputError
from envbuild.gpu.model import NOT_RUN
from envbuild.gpu.script import single_file
from envbuild.gpu.sealed import read_document
from envbuild.launch.clients import Clients
from envbuild.launch.gpu_tiers import check_image
from envbuild.launch.launch import Prepared, load_form
from envbuild.launch.trial import Trial, node_trial, run_trial
from tests.support.dockerd import dockerd, run
from tests.support.gpu_bench import job
from tests.support.launching import shipped_target, site, torch_image

__all__ = ["dockerd"]

pytestmark = pytest.mark.clients

PYTHON = "/usr/bin/python3"
LEFT_OUT = ("__pycache__", "dist-packages", "idlelib", "test", "tests", "config-")


@pytest.fixture(scope="module")
def image(dockerd: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the name of an image in the engine, which has the Python of this machine and nothing else."""
    if not Path(PYTHON).exists():
        pytest.skip(f"{PYTHON} is not installed")
    path = tmp_path_factory.mktemp("image") / "image.tar"
    query = "import sys, sysconfig; print(sys.executable, sysconfig.get_path('stdlib'))"
    program, library = run(PYTHON, "-I", "-c", query).split()
    files = {Path(program).resolve(), *Path(library).rglob("*")}
    files = {file for file in files if file.is_file() and not any(f"/{part}" in str(file) for part in LEFT_OUT)}
    for file in [file for file in files if ".so" in file.name or file == Path(program).resolve()]:
        for word in subprocess.run(["ldd", file], capture_output=True, text=True).stdout.split():
            if word.startswith("/"):
                files.add(Path(word))
    with tarfile.open(path, "w") as archive:
        for file in sorted(files):
            archive.add(file.resolve(), str(file).lstrip("/"), recursive=False)
        link = tarfile.TarInfo(PYTHON.lstrip("/"))
        link.type, link.linkname = tarfile.SYMTYPE, str(Path(program).resolve())
        archive.addfile(link, io.BytesIO())
        for name in ("tmp", "proc", "dev", "sys"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
            archive.addfile(folder)
    run("docker", "-H", dockerd, "import", str(path), "checks:1")
    yield "checks:1"


def trial(image: str, target: str = "h100-ib") -> Trial:
    own = torch_image(layers=("nccl",), versions={}, env={}, target=target, docker=image)
    prepared = Prepared(load_form("docker"), own, shipped_target(target), Clients(site().slurm))
    return node_trial(prepared, site(), root=True)


def test_an_engine_without_gpus_is_the_reason_that_nothing_ran(
    dockerd: str, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", dockerd)
    ended = run_trial(trial(image), "docker", single_file(job(), "test"))
    if ended.documents:
        pytest.skip("this engine has GPUs")
    assert "the job reported nothing (exit code 125)" in ended.fault and "Error response" in ended.fault


def test_the_program_runs_in_a_container(dockerd: str, image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", dockerd)
    found = trial(image)
    # this engine has no GPUs, and may not raise limits
    lines = [line for line in found.text.splitlines() if "--gpus=" not in line and "--ulimit=" not in line]
    ended = run_trial(replace(found, text="\n".join(lines)), "docker", single_file(job(layers=(), versions={}), "test"))
    assert ended.fault == ""
    document, outcomes = read_document(json.dumps(ended.documents[0]))
    assert document["target"] == "h100-ib" and {outcome.status for outcome in outcomes} == {NOT_RUN}


def test_an_image_of_the_project_is_started_by_its_id_and_not_as_another_one(
    dockerd: str, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tag in the engine follows from the lock: after an edit of variables it is still that of the image before."""
    monkeypatch.setenv("DOCKER_HOST", dockerd)
    found = json.loads(run("docker", "-H", dockerd, "image", "inspect", image))[0]
    env = dict(line.split("=", 1) for line in found["Config"].get("Env") or [])
    arch = found["Architecture"]
    own = torch_image(docker=image, arch=arch, env=env, diff_ids=tuple(found["RootFS"]["Layers"]), reference="")
    own = replace(own, sha256=f"sha256:{'0' * 64}")
    at: Any = None
    assert check_image(own, "docker", at).docker == found["Id"]
    for other in (replace(own, env={**env, "NEW": "1"}), replace(own, diff_ids=own.diff_ids * 2)):
        with pytest.raises(EnvbuildError, match=f"the Docker Engine has another image as {image} than") as caught:
            check_image(other, "docker", at)
        assert caught.value.findings[0].hint == f"envbuild export {own.name} --to docker"
    with pytest.raises(InputError, match="the Docker Engine has no image missing:1"):
        check_image(replace(own, docker="missing:1"), "docker", at)
