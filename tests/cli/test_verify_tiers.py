"""``envbuild verify --tier gpu``, ``--tier fabric`` and ``--read``: answers, exit codes and mistakes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from envbuild.gpu.model import FAIL, GPU, NOT_RUN, PASS, Figure, Outcome
from envbuild.gpu.sealed import evidence_document
from envbuild.lock.lockfile import parse_lock
from envbuild.lock.model import lock_digest
from tests.support.command import ROOT, envbuild
from tests.support.command import refused as check_refused
from tests.support.gpu_bench import job

pytestmark = pytest.mark.unit

IMAGE = "h100-nccl"
LOCK = lock_digest(parse_lock((ROOT / f"images/{IMAGE}.lock").read_text(), Path("x")))
SITE = "schema: 1\nimages: /fs/images\nslurm: {version: '23.11.4', pyxis: '0.20.0', enroot: '4.0.1', pmix: [pmix]}\n"


def refused(folder: Path, code: int, *words: str) -> str:
    done = envbuild("verify", *words, ENVBUILD_STORE=str(folder / "store"))
    check_refused(done, code, "hint:")
    return done.stderr


def outcomes(value: float = 470.0) -> tuple[Outcome, ...]:
    return (
        Outcome("NCCL", GPU, PASS, "x", figures=(Figure("node_allreduce_busbw", value, "GB/s", 16 << 30, 8),)),
        Outcome("NVLink", GPU, NOT_RUN, "one GPU, no fabric"),
    )


def evidence(folder: Path, *found: Outcome, day: int = 1, **values: Any) -> Path:
    """Write the file that the program of make gpu-evidence writes."""
    own = job(**{"image": IMAGE, "lock": LOCK, "target": "h100-ib", **values})
    document = evidence_document(own, found, f"2026-01-{day:02}T00:00:00Z", "envbuild 0", {"gpus": ["NVIDIA H100"]})
    path = folder / f"evidence-{day}.json"
    path.write_text(json.dumps(document))
    return path


def read(path: Path, folder: Path, *words: str, code: int = 0) -> dict[str, Any]:
    done = envbuild("verify", *words, "--read", str(path), "--json", ENVBUILD_STORE=str(folder / "store"))
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_evidence_of_another_machine_is_read_compared_and_stored(tmp_path: Path) -> None:
    first = read(evidence(tmp_path, *outcomes(480.0)), tmp_path)
    assert first["counts"] == {"pass": 2, "fail": 0, "not-run": 1}
    assert Path(first["evidence"]).is_file() and first["changes"] == []
    second = read(evidence(tmp_path, *outcomes(450.0), day=2), tmp_path, IMAGE, code=7)
    assert second["changes"] == ["NCCL: 480 -> 450 GB/s, -6.2 % since 2026-01-01T00:00:00Z"]
    (failed,) = [result for result in second["results"] if result["status"] == "fail"]
    assert failed["name"] == "NCCL: reaches the floor" and "at least 460 GB/s" in failed["detail"]


def test_the_text_of_an_answer(tmp_path: Path) -> None:
    found = (*outcomes(), Outcome("kernel", GPU, FAIL, "no image\x1b[31m\n  ok  all", "do this"))
    path = evidence(tmp_path, *found)
    done = envbuild("verify", "--read", str(path), ENVBUILD_STORE=str(tmp_path / "store"))
    assert done.returncode == 7 and "Traceback" not in done.stderr
    first, *lines = done.stdout.splitlines()
    assert first == f"{IMAGE}, tier gpu, target h100-ib: 1 x NVIDIA H100; 2 passed, 1 failed, 1 not run"
    assert "  not run  NVLink: one GPU, no fabric" in lines and "  hint: do this" in lines
    assert "\x1b" not in done.stdout and "  ok  all" not in lines


def test_evidence_without_a_check_that_ran_is_not_a_pass(tmp_path: Path) -> None:
    answer = read(evidence(tmp_path, Outcome("NCCL", GPU, NOT_RUN, "no GPU")), tmp_path, code=5)
    assert answer["evidence"] == "" and answer["counts"]["pass"] == 0


@pytest.mark.parametrize("change", ["truncated", "lock", "target", "changed", "empty", "image"])
def test_evidence_is_refused_with_the_reason(change: str, tmp_path: Path) -> None:
    others = {"lock": f"sha256:{'0' * 64}", "target": "p5-efa", "image": "no-such"}
    values: dict[str, Any] = {change: others[change]} if change in others else {}
    path = evidence(tmp_path, *outcomes(), **values)
    text = path.read_text()
    texts = {"truncated": text[:-20], "changed": text.replace("470.0", "480.0"), "empty": ""}
    path.write_text(texts.get(change, text))
    error = refused(tmp_path, 2 if change == "image" else 7, "--read", str(path))
    reasons = {"lock": "of another lock", "target": "not 'h100-ib'", "image": "no-such"}
    assert reasons.get(change, "the evidence is refused") in error


@pytest.mark.parametrize(
    "words",
    [
        ("--tier", "gpu"),
        (IMAGE, "--tier", "gpu", "--tier", "run"),
        (IMAGE, "--tier", "gpu", "-N", "2"),
        (IMAGE, "--tier", "fabric"),
        (IMAGE, "--tier", "fabric", "-N", "2", "--as", "docker"),
        (IMAGE, "--tier", "gpu", "--only", "nccl"),
        (IMAGE, "--tier", "gpu", "--as", "mpirun"),
        (IMAGE, "--dry-run"),
        (IMAGE, "--pack", "x"),
        (IMAGE, "--tier", "gpu", "--tier", "fabric", "--pack", "x"),
        (IMAGE, "--tier", "fabric", "--pack", "x"),
        (IMAGE, "--tier", "gpu", "--dry-run", "--pack", "x"),
        (IMAGE, "--tier", "run", "-N", "2"),
        ("--read", "x", "--tier", "gpu"),
        ("--read", "x", "--pack", "y"),
        (IMAGE, "--read", "x", "--pack", "y", "--tier", "audit", "--tier", "run"),
        ("cpu-ucx", "--tier", "gpu", "--as", "docker"),
        (),
    ],
)
def test_mistakes_are_errors_with_a_hint(words: tuple[str, ...], tmp_path: Path) -> None:
    refused(tmp_path, 2, *words)


def test_an_image_without_an_accelerator_is_refused_before_slurm_is_queried(tmp_path: Path) -> None:
    (tmp_path / "srun").write_text(f"#!/bin/sh\ntouch {tmp_path}/queried\n")
    (tmp_path / "srun").chmod(0o755)
    env = {"ENVBUILD_STORE": str(tmp_path / "store"), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = envbuild("verify", "cpu-ucx", "--tier", "gpu", **env)
    check_refused(done, 2, "target 'cpu' has no accelerator")
    assert not (tmp_path / "queried").exists()


def test_the_jobs_are_printed_and_not_started(tmp_path: Path) -> None:
    (tmp_path / "envbuild").mkdir()
    (tmp_path / "envbuild/site.yaml").write_text(SITE)
    env = {"ENVBUILD_STORE": str(tmp_path / "store"), "XDG_CONFIG_HOME": str(tmp_path)}
    gpu = envbuild("verify", IMAGE, "--tier", "gpu", "--as", "srun", "--dry-run", **env)
    assert gpu.returncode == 0 and "srun " in gpu.stdout and "- node" in gpu.stdout
    fabric = envbuild("verify", IMAGE, "--tier", "fabric", "-N", "2", "--dry-run", **env)
    assert fabric.returncode == 0, fabric.stderr
    assert "NCCL_NET=envbuild-no-such-network" in fabric.stdout
    assert "# perftest: ib_write_bw between GPUs of two nodes: not run: " in fabric.stdout
    assert not list((tmp_path / "store").glob("measured/*"))


def test_jobs_on_several_nodes_start_with_slurm_also_where_docker_alone_is_installed(tmp_path: Path) -> None:
    for folder in ("envbuild", "bin"):
        (tmp_path / folder).mkdir()
    (tmp_path / "envbuild/site.yaml").write_text(SITE)
    (tmp_path / "bin/docker").symlink_to("/bin/true")
    env = {"ENVBUILD_STORE": str(tmp_path / "store"), "XDG_CONFIG_HOME": str(tmp_path), "PATH": str(tmp_path / "bin")}
    done = envbuild("verify", IMAGE, "--tier", "fabric", "-N", "2", "--dry-run", **env)
    assert done.returncode == 0, done.stderr
    assert "srun " in done.stdout and "docker" not in done.stdout


def test_an_image_that_is_not_built_starts_no_job(tmp_path: Path) -> None:
    if not shutil.which("docker"):
        pytest.skip("docker is not installed")
    error = refused(tmp_path, 1, IMAGE, "--tier", "gpu", "--as", "docker")
    assert "is not built" in error and f"envbuild make {IMAGE}" in error
