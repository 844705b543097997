"""Scripts on a real Slurm of two nodes: what is printed runs, and its words, variables and ranks arrive."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import SpecError
from envbuild.launch.client_queries import ClientQueries
from envbuild.launch.clients import check_partition, find_clients
from envbuild.launch.model import Plan
from envbuild.launch.quoting import sbatch_line
from envbuild.launch.time_limit import time_faults
from envbuild.net.slurm_site import NodeSettings, Slurm
from envbuild.spec.launch_profile import Launch
from envbuild.spec.target import Target
from tests.support.launching import make_plan, site, torch_image, written
from tests.support.slurm_cluster import Cluster, pyxis_plugin, slurm_cluster

pytestmark = pytest.mark.clients

NODES = Target(name="small", gpu="A100 80GB", sm="8.0", gpus=2, launch=Launch(cpus_per_task=2, job=("--exclusive",)))
IMAGE = torch_image(target="small", env={})
SHOW = 'echo "rank=$RANK local=$LOCAL_RANK of=$WORLD_SIZE at=$MASTER_ADDR port=$MASTER_PORT value=$VALUE $*"'
HARD = 'it\'s "$HOME" `id` \\ #1 %j'


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with slurm_cluster() as found:
        yield found


def plan(command: tuple[str, ...] = ("sh", "-c", SHOW, "sh", HARD), form: str = "sbatch", **options: Any) -> Plan:
    """Return a plan without a container: this machine's Slurm may have no pyxis. What is left is printed as ever."""
    nodes = NodeSettings(partition="gpu", mounts=())
    found = make_plan(command, form=form, image=IMAGE, target=NODES, at=site(nodes=nodes), nodes=2, **options)
    return replace(found, container=(), image=replace(IMAGE, squashfs=""))


def ranks(output: str) -> list[str]:
    return sorted(line for line in output.splitlines() if line.startswith("rank="))


def test_a_batch_script_starts_every_rank(cluster: Cluster, tmp_path: Path) -> None:
    output, job = cluster.batch(written(plan(env={"VALUE": HARD}, name="it's #1"), "sbatch"), tmp_path)
    number = int(re.findall(r"JobId=(\d+)", job)[0])
    port = number % 4536 + 61000
    assert ranks(output) == [
        f"rank={rank} local={rank % 2} of=4 at=n1 port={port} value={HARD} {HARD}" for rank in range(4)
    ]
    assert "JobState=COMPLETED" in job
    assert "JobName=it's #1\n" in job
    assert "Partition=gpu" in job
    assert "TresPerNode=gres:gpu:2" in job
    assert "OverSubscribe=NO" in job


def test_a_step_finds_the_first_host_without_scontrol(cluster: Cluster) -> None:
    script = written(plan(form="srun", env={"VALUE": HARD}), "srun")
    done = cluster.run("sh", "-c", script)
    found = ranks(done)
    assert len(found) == 4
    assert all(f"rank={rank} local={rank % 2} of=4 at=n1 port=6" in line for rank, line in enumerate(found))
    assert all(line.endswith(f"value={HARD} {HARD}") for line in found)


def test_torchrun_gets_the_number_of_its_node(cluster: Cluster, tmp_path: Path) -> None:
    program = tmp_path / "torchrun"
    program.write_text('#!/bin/sh\necho "rank=$SLURM_NODEID $*"\n')
    program.chmod(0o755)
    text = written(plan(("train.py", "a b"), form="torchrun"), "torchrun").replace(
        "set -eu", f"set -eu; PATH={tmp_path}:$PATH"
    )
    output, _ = cluster.batch(text, tmp_path)
    assert [re.sub("master_port 6[0-9]+", "master_port P", line) for line in ranks(output)] == [
        f"rank={node} --node_rank {node} --master_addr n1 --master_port P --nnodes=2 --nproc_per_node=2 train.py a b"
        for node in range(2)
    ]


def test_sbatch_reads_the_times_that_a_launch_passes_on(cluster: Cluster) -> None:
    for text in (
        "9",
        "9:30",
        "0:09:00",
        "0-0",
        "0-0:09",
        "0-0:09:00",
        "UNLIMITED",
        "infinite",
        "4h",
        "noon",
        "1-2-3",
        "1:",
    ):
        done = cluster.run("sbatch", "--parsable", "--hold", f"--time={text}", "--wrap=true", check=False)
        assert ("Invalid --time specification" in done) is bool(time_faults(text)), (text, done)
    cluster.run("scancel", "--user=root", check=False)


def test_a_rank_that_fails_ends_the_job(cluster: Cluster, tmp_path: Path) -> None:
    command = ("sh", "-c", 'test "$RANK" != 3 || exit 7; sleep 60')
    _, job = cluster.batch(written(plan(command), "sbatch"), tmp_path)
    assert "JobState=FAILED" in job
    assert re.search(r"ExitCode=(7|137|143|9):", job), job


def test_an_image_that_the_node_cannot_read_ends_the_job(cluster: Cluster, tmp_path: Path) -> None:
    unreadable = replace(plan(), image=replace(IMAGE, squashfs="/nowhere/it's.sqsh"))
    output, job = cluster.batch(written(unreadable, "sbatch"), tmp_path)
    assert output == "error: this node cannot read /nowhere/it's.sqsh\n"
    assert "JobState=FAILED" in job


@pytest.mark.parametrize(
    "value", ["plain", "a b", "it's", 'say "x"', "a#b", "#a", "back\\slash", "a\tb", "$HOME `id`", "a;b|c"]
)
def test_sbatch_reads_what_is_written(value: str, cluster: Cluster, tmp_path: Path) -> None:
    script = f"#!/bin/sh\n{sbatch_line(f'--job-name={value}')}\n{sbatch_line('--partition=gpu')}\ntrue\n"
    number = cluster.run("sbatch", "--parsable", "--hold", content=script, cwd=tmp_path).strip()
    described = cluster.run("scontrol", "show", "job", number)
    cluster.run("scancel", number)
    assert f" JobName={value}\n" in described
    assert "Partition=gpu" in described


@pytest.mark.parametrize("hosts", ["n1", "n[1-2]", "n[003-016,020],login", "a,b", "rack[1-2]n[3,5]", "gpu[07]"])
def test_the_first_host_of_a_list(hosts: str, cluster: Cluster) -> None:
    from envbuild.launch.steps import FIRST_HOST

    expected = cluster.run("scontrol", "show", "hostnames", hosts).splitlines()[0]
    done = subprocess.run(
        ["sh", "-c", f'{FIRST_HOST}; echo "$h"'], env={"SLURM_STEP_NODELIST": hosts}, capture_output=True, text=True
    )
    assert done.stdout == f"{expected}\n"


def test_what_this_slurm_answers(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, cluster.env[name])
    query = ClientQueries()
    found = find_clients(Slurm(), query)
    assert re.fullmatch(r"[0-9.]+", found.slurm.version)
    assert "pmix" in (found.slurm.pmix or ()) or found.slurm.pmix == ()
    check_partition("gpu", query)
    check_partition("", query)
    with pytest.raises(SpecError, match="this cluster has no partition 'hpc'"):
        check_partition("hpc", query)
    if not found.slurm.pyxis:
        with pytest.raises(SpecError, match="Slurm here has no pyxis"):
            found.require_pyxis()


def test_a_cluster_without_a_default_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    with slurm_cluster(default=False) as found:
        for name in ("PATH", "SLURM_CONF"):
            monkeypatch.setenv(name, found.env[name])
        with pytest.raises(SpecError, match="no partition is named, and this cluster has no default one"):
            check_partition("", ClientQueries())


def test_an_image_starts_by_pyxis(tmp_path: Path) -> None:
    """The whole line, with its container, where pyxis and enroot are installed."""
    plugin = pyxis_plugin()
    if plugin is None:
        pytest.skip("pyxis is not installed: no spank_pyxis.so")
    if not shutil.which("mksquashfs"):
        pytest.skip("mksquashfs is not installed: apt-get install squashfs-tools")
    from tests.support.tiny_root import host_files

    root, image = tmp_path / "root", tmp_path / "small.sqsh"
    for place, source in host_files():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, root / place)
    for name in ("etc", "proc", "sys", "dev", "tmp", "run", "root", "var"):
        (root / name).mkdir(exist_ok=True)
    (root / "bin").exists() or (root / "bin").symlink_to("usr/bin")
    env = {"PATH": "/usr/bin:/bin", "VALUE": "the image's", "PYTORCH_VERSION": "2"}
    (root / "etc/environment").write_text("".join(f"{name}={value}\n" for name, value in env.items()))
    (root / "etc/rc").write_text('exec "$@"\n')
    subprocess.run(["mksquashfs", root, image, "-quiet", "-no-progress"], check=True, stdout=subprocess.DEVNULL)
    one = replace(IMAGE, squashfs=str(image), env=env)
    for release in ("0.11.1", "0.24.0"):
        at = site(slurm=Slurm(version="22.05.8", pyxis=release), nodes=NodeSettings(partition="gpu"))
        found = make_plan(
            ("sh", "-c", SHOW, "sh", HARD), form="sbatch", image=one, target=NODES, at=at, env={"VALUE": HARD},
            because="a test", root=os.geteuid() == 0,
        )  # fmt: skip
        with slurm_cluster(pyxis=plugin) as cluster:
            output, _ = cluster.batch(written(found, "sbatch"), tmp_path)
        assert [re.sub("port=[0-9]+", "port=P", line) for line in ranks(output)] == [
            f"rank={rank} local={rank} of=2 at=n1 port=P value={HARD} {HARD}" for rank in range(2)
        ], output
