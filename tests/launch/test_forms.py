"""Output forms: one file each, their stored texts, and the readers of their languages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from envbuild.cli.launch_job import parse_hosts
from envbuild.core.errors import SpecError
from envbuild.launch.clients import older
from envbuild.launch.explain import explain
from envbuild.launch.forms import DEFAULT, FORMS
from envbuild.launch.launch import check_hosts, load_form
from envbuild.launch.model import Kind, Request
from envbuild.net.slurm_site import NodeSettings, Slurm
from tests.support.launching import (
    answer_of,
    check_script,
    edf_of,
    launch_shipped,
    make_plan,
    site,
    torch_image,
    write_launch,
    written,
)

pytestmark = pytest.mark.unit

STORED = Path(__file__).parent / "forms"
SHELL = ("docker", "deepspeed", "edf", "mpirun", "sbatch", "srun", "torchrun")
AT = site(nodes=NodeSettings(partition="gpu", mounts=("/data:/data:ro",)))
# The command that a form is for, beside others.
COMMANDS = {"mpirun": ("all_reduce_perf", "-b", "8"), "mpijob": ("all_reduce_perf", "-b", "8")}
HARD = {"HARD": 'it\'s "$HOME" `id` \\ #1'}


DEEPSPEED = torch_image(layers=("nccl", "torch", "openmpi", "deepspeed", "nccl-tests"), ssh_server=True)


def sample(form: str, **request: Any) -> str:
    kind = load_form(form).KIND
    hosts = {"hosts": ("n1", "n2")} if kind.hosts else {}
    at = AT if form not in ("mpijob", "trainjob") else site()
    options = {"nodes": 2, **hosts, **request}
    return write_launch(COMMANDS.get(form, ("train.py", "--name", "a b")), form=form, image=DEEPSPEED, at=at, **options)


def test_every_form_has_its_text() -> None:
    assert sorted(path.stem for path in STORED.glob("*.txt")) == list(FORMS)
    assert DEFAULT in FORMS


@pytest.mark.parametrize("form", FORMS)
def test_a_form_has_a_kind_a_writer_and_a_description(form: str) -> None:
    module = load_form(form)
    assert isinstance(module.KIND, Kind)
    assert callable(module.write)
    assert (module.__doc__ or "").splitlines()[0].endswith(".")


@pytest.mark.parametrize("form", FORMS)
def test_text(form: str, update_golden: bool) -> None:
    stored = STORED / f"{form}.txt"
    text = sample(form)
    if update_golden:
        stored.write_text(text)
    assert text == stored.read_text()


@pytest.mark.parametrize("form", FORMS)
def test_the_text_is_part_of_the_answer(form: str) -> None:
    plan = make_plan(COMMANDS.get(form, ("train.py",)), form=form, image=DEEPSPEED)
    answer = answer_of(plan, form)
    assert json.loads(json.dumps(answer))["text"] == written(plan, form)


@pytest.mark.parametrize("form", SHELL)
@pytest.mark.parametrize("env", [{}, HARD], ids=["plain", "hard"])
def test_scripts_pass_the_shell_and_shellcheck(form: str, env: dict[str, str], tmp_path: Path) -> None:
    one = {"nodes": 1, "hosts": ("n1",)} if form == "deepspeed" else {}  # which passes no such value on to other nodes
    check_script(sample(form, env=env, **one), tmp_path)


@pytest.mark.parametrize("release", ["", "0.3.15", "0.16.3", "0.16.5", "0.19.8"])
def test_values_that_deepspeed_would_change_are_refused(release: str) -> None:
    """Releases before 0.16.5 write ``export NAME=VALUE;`` for the shells of the nodes, later ones in double quotes."""
    values = {"A": "my run", "B": "/data/$x", "C": "`id`", "D": 'a"b', "E": "a\\b", "F": "a\nb", "G": " a", "H": "a;b"}
    values |= {"K": "%h", "L": "x%n", "M": "100%%"}
    plain = {"I": "/a-b_c.d:e,f=g@h%i+j", "J": "", "N": "^lo,docker0"}
    image = replace(DEEPSPEED, versions={**DEEPSPEED.versions, **({"deepspeed": release} if release else {})})
    job = {"form": "deepspeed", "image": image, "hosts": ("a", "b"), "nodes": 2}
    with pytest.raises(SpecError) as caught:
        write_launch(("train.py",), env={**values, **plain}, **job)
    quotes = release in ("0.16.5", "0.19.8")
    refused = [finding.message.partition(":")[0] for finding in caught.value.findings]
    assert refused == [name for name in values if not (quotes and name in "AH")]
    assert "I=/a-b_c.d:e,f=g@h%i+j J= 'N=^lo,docker0'" in write_launch(("train.py",), env=plain, **job)
    assert ".deepspeed_env" not in write_launch(("train.py",), env=values, form="deepspeed", image=image)


@pytest.mark.parametrize("form", ["srun", "sbatch", "torchrun"])
@pytest.mark.parametrize("release", ["0.11.1", "0.24.0"])
def test_variables_with_effect_on_srun_are_set_in_the_container(form: str, release: str) -> None:
    at = site(slurm=Slurm(version="22.05.8", pyxis=release))
    image = replace(DEEPSPEED, env={"PATH": "/usr/bin", "NCCL_NET": "Socket"})
    names = {"PATH": "/opt/x:/bin", "LD_PRELOAD": "/opt/a b.so", "MINE": "1"}
    text = write_launch(("train.py",), form=form, image=image, at=at, env=names, because="a test", nodes=2)
    assert "export MINE=1\n" in text and "export PATH" not in text and "export LD_" not in text
    assert "env " in text and " PATH=/opt/x:/bin " in text and " 'LD_PRELOAD=/opt/a b.so' " in text
    assert "--container-env=PATH" not in text and ",PATH" not in text


def test_a_new_form_is_one_file(tmp_path: Path) -> None:
    """A copy of the package with one more file knows its form."""
    package = tmp_path / "envbuild"
    shutil.copytree(Path(__file__).parents[2] / "envbuild", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "launch/forms/flux.py").write_text(
        '"""Flux."""\n\nfrom envbuild.launch.model import Kind, Written\n\nKIND = Kind()\n\n\n'
        "def write(plan):\n    return Written(f'flux run -N{plan.nodes}\\n')\n"
    )
    program = "from tests.support.launching import write_launch; print(write_launch(form='flux', nodes=3), end='')"
    path = f"{tmp_path}:{Path(__file__).parents[2]}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,  # the first folder that is searched
        capture_output=True,
        text=True,
    )
    assert done.stdout == "flux run -N3\n", done.stderr


def test_an_edf_is_toml_with_strings() -> None:
    value = tomllib.loads(edf_of(sample("edf", env=HARD)))
    assert value["image"] == "/fs/images/net.sqsh"
    assert value["mounts"] == ["/opt/microsoft:/opt/microsoft", "/data:/data:ro"]
    assert (value["writable"], value["entrypoint"]) == (False, False)
    assert value["env"]["HARD"] == HARD["HARD"].replace("$", "$$")
    assert all(isinstance(item, str) for item in value["env"].values())


def test_a_dollar_in_a_path_of_an_edf_expands_nothing() -> None:
    image = torch_image(squashfs="/fs/${USER}/net.sqsh")
    value = tomllib.loads(edf_of(write_launch(form="edf", image=image, mounts=("/data/${A}:/data",))))
    assert value["image"] == "/fs/$${USER}/net.sqsh"
    assert value["mounts"][-1] == "/data/$${A}:/data"


def test_a_trainjob_is_what_kubeflow_reads() -> None:
    value = yaml.safe_load(sample("trainjob", env=HARD))
    assert (value["apiVersion"], value["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    trainer = value["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 8)
    assert trainer["command"] == ["torchrun", "train.py", "--name", "a b"]
    assert {"name": "HARD", "value": HARD["HARD"].replace("$", "$$")} in trainer["env"]  # expands nothing
    assert trainer["resourcesPerNode"]["limits"] == {"nvidia.com/gpu": 8, "rdma/ib": 1}


@pytest.mark.parametrize("form", ["trainjob", "mpijob"])
def test_a_site_names_the_resource_of_its_fabric(form: str) -> None:
    plugin = "rdma/hca_shared_devices_a"
    text = write_launch(
        COMMANDS.get(form, ("train.py",)), form=form, image=DEEPSPEED, at=site(nodes=NodeSettings(rdma=plugin))
    )
    assert f'"{plugin}": 1' in text
    assert "rdma/ib" not in text
    assert "# rdma/ib: the device plugin of a cluster may name it otherwise" in sample(form)


def test_a_trainjob_has_shared_and_locked_memory_and_the_folders_of_the_nodes() -> None:
    value = yaml.safe_load(sample("trainjob", mounts=("/data:/data:ro",)))
    (patch,) = value["spec"]["runtimePatches"]
    (job,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]["spec"]
    assert [item["name"] for item in pod["volumes"]] == ["shm", "host-0", "host-1"]
    (container,) = pod["containers"]
    assert (job["name"], container["name"]) == ("node", "node")
    assert container["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    assert container["volumeMounts"][0] == {"name": "shm", "mountPath": "/dev/shm"}
    assert container["volumeMounts"][2] == {"name": "host-1", "mountPath": "/data", "readOnly": True}


def test_an_mpijob_passes_each_variable_by_mpirun() -> None:
    value = yaml.safe_load(sample("mpijob", env=HARD))
    replicas = value["spec"]["mpiReplicaSpecs"]
    launcher = replicas["Launcher"]["template"]["spec"]["containers"][0]
    assert launcher["command"][4:8] == ["-np", "16", "--map-by", "ppr:8:node"]
    assert f"HARD={HARD['HARD']}".replace("$", "$$") in launcher["command"]  # expands nothing
    assert launcher["command"][-3:] == ["all_reduce_perf", "-b", "8"]
    worker = replicas["Worker"]["template"]["spec"]["containers"][0]
    assert worker["resources"]["requests"] == {"nvidia.com/gpu": 8, "rdma/ib": 1}
    assert (value["spec"]["slotsPerWorker"], replicas["Worker"]["replicas"]) == (8, 2)


def test_an_mpijob_starts_the_ssh_server_of_its_image() -> None:
    """The operator's own command has no key of the host, as no image has one."""
    value = yaml.safe_load(sample("mpijob"))
    replicas = value["spec"]["mpiReplicaSpecs"]
    worker = replicas["Worker"]["template"]["spec"]["containers"][0]["command"]
    assert worker[:2] == ["sh", "-c"]
    assert all(word in worker[2] for word in ("/run/sshd", "/usr/sbin/sshd -De", "HostKey=/root/.ssh/id_rsa"))
    command = replicas["Launcher"]["template"]["spec"]["containers"][0]["command"]
    assert command[1:3] == ["--mca", "plm_rsh_args"]
    assert "StrictHostKeyChecking=no" in command[3]
    assert ["-x", "PATH"] in [command[at : at + 2] for at in range(len(command))]


def test_deepspeed_on_several_nodes_states_that_its_image_has_no_server() -> None:
    """Its launcher reaches the other nodes by ssh; a server may be the host's."""
    image = replace(DEEPSPEED, ssh_server=False)
    job = {"form": "deepspeed", "image": image}
    assert "# this image has no SSH server" in write_launch(("train.py",), nodes=2, hosts=("a", "b"), **job)
    assert "no SSH server" not in write_launch(("train.py",), **job)
    assert "no SSH server" not in sample("deepspeed")


def test_an_mpijob_needs_an_ssh_server() -> None:
    job = {"form": "mpijob", "nodes": 2}
    with pytest.raises(SpecError, match="net has no SSH server") as caught:
        write_launch(COMMANDS["mpijob"], image=torch_image(ssh_server=False), **job)
    assert "openssh-server" in caught.value.hint
    unknown = write_launch(COMMANDS["mpijob"], image=torch_image(), **job)
    assert unknown.startswith("# the image has an SSH server (/usr/sbin/sshd)")


def test_an_mpijob_keeps_mounts_read_only() -> None:
    mounts = ("/data", "/fs/team:/team:ro", "/a:/b:private+ro", "/c:/d:rw")
    value = yaml.safe_load(sample("mpijob", mounts=mounts))
    worker = value["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    assert [item["hostPath"]["path"] for item in worker["volumes"][-4:]] == ["/data", "/fs/team", "/a", "/c"]
    found = {item["mountPath"]: item.get("readOnly", False) for item in worker["containers"][0]["volumeMounts"]}
    assert {name: found[name] for name in ("/data", "/team", "/b", "/d")} == {
        "/data": False, "/team": True, "/b": True, "/d": False,
    }  # fmt: skip


def test_a_pasted_script_neither_ends_a_login_shell_nor_leaves_a_file(tmp_path: Path) -> None:
    for form in ("edf", "mpirun", "deepspeed"):
        pasted = (
            f"srun() {{ false; }}; mpirun() {{ false; }}; deepspeed() {{ false; }}\n{sample(form)}echo alive; trap -p\n"
        )
        done = subprocess.run(
            ["bash"], input=pasted, cwd=tmp_path, env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout == "alive\n", done.stderr
    assert not list(tmp_path.glob("*.toml"))


def test_a_script_that_root_writes_names_the_option_of_users() -> None:
    assert "\n# for a job of root; a user's has --no-container-remap-root\n" in sample("sbatch", root=True)
    assert "root" not in sample("sbatch").replace("--no-container-remap-root", "")


def test_host_files_are_in_the_dialect_of_their_reader(tmp_path: Path) -> None:
    """The scripts are run with functions in place of mpirun and deepspeed, which print the file that they are given."""
    printer = 'show() { while [ $# -gt 0 ]; do [ "$1" = --hostfile ] && cat "$2"; shift; done; }\n'
    for form, expected in (("mpirun", "n1\nn2\n"), ("deepspeed", "n1 slots=8\nn2 slots=8\n")):
        script = f'{printer}{form}() {{ show "$@"; }}\n{sample(form)}'
        done = subprocess.run(
            ["sh", "-c", script],
            env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.stdout == expected, done.stderr
    assert "NCCL_NET=IB" in (tmp_path / ".deepspeed_env").read_text().splitlines()


def test_refused_combinations() -> None:
    cases = {
        "docker": (("all_reduce_perf",), "docker starts no MPI over several nodes"),
        "mpirun": (("train.py",), "mpirun starts programs with MPI"),
        "mpijob": (("train.py",), "an MPIJob starts programs with MPI"),
        "trainjob": (("all_reduce_perf",), "a TrainJob starts torchrun, and the command starts MPI"),
        "torchrun": (("torchrun", "train.py"), "'torchrun' starts the ranks of its node itself"),
        "deepspeed": (("train.py",), "contains no DeepSpeed"),
    }
    for form, (command, message) in cases.items():
        with pytest.raises(SpecError, match=message) as caught:
            write_launch(command, form=form, nodes=2, hosts=("a", "b"))
        assert caught.value.hint
    with pytest.raises(SpecError, match="Kubernetes pulls images from a registry"):
        write_launch(form="trainjob", image=torch_image(reference=""))
    with pytest.raises(SpecError, match="is not a name of Kubernetes"):
        write_launch(form="trainjob", name="Not_Valid")
    with pytest.raises(SpecError, match="target 'azure-ndv4' has no compile step"):
        write_launch(compile=True)
    for form in ("deepspeed", "docker", "edf", "mpijob", "mpirun", "trainjob"):
        with pytest.raises(SpecError, match="--compile is a step of a Slurm job"):
            write_launch(form=form, compile=True)


def test_names_of_hosts() -> None:
    with pytest.raises(SpecError, match="--as docker with 2 nodes needs their names"):
        check_hosts("docker", Request(("x",), nodes=2), needed=True)
    with pytest.raises(SpecError, match="1 hosts are named, and the job has 2 nodes"):
        check_hosts("docker", Request(("x",), nodes=2, hosts=("a",)), needed=True)
    with pytest.raises(SpecError, match="--hosts has no meaning with --as srun"):
        check_hosts("srun", Request(("x",), hosts=("a",)), needed=False)


@pytest.mark.parametrize("form", [name for name in FORMS if not load_form(name).KIND.slurm])
def test_options_of_slurm_are_refused_without_it(form: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        launch_shipped("h100-nccl", form, "", tmp_path, ["x"], time="1:00", partition="gpu", cpus_per_task=2)
    assert [finding.message.partition(" has no meaning")[0] for finding in caught.value.findings] == [
        "--time",
        "--partition",
        "--cpus-per-task",
    ]


@pytest.mark.parametrize("form", FORMS)
def test_what_is_explained_is_in_the_text(form: str) -> None:
    kind = load_form(form).KIND
    hosts = {"hosts": ("n1", "n2")} if kind.hosts else {}
    plan = make_plan(COMMANDS.get(form, ("train.py",)), form=form, image=DEEPSPEED, nodes=2, **hosts)
    text, found = written(plan, form), explain(plan, slurm=kind.slurm)
    for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"):
        assert (name in found) <= (name in text), name
    for options in (plan.job, plan.step, plan.docker):
        assert all(item.text.partition("=")[0] in text for item in options if item.text in found)


def test_an_unknown_form_names_all() -> None:
    with pytest.raises(SpecError) as caught:
        load_form("sbach")
    assert (
        str(caught.value) == f"--as sbach is not known\nhint: did you mean 'sbatch'? the forms are: {', '.join(FORMS)}"
    )


def test_who_is_root_decides_the_user_in_the_container() -> None:
    assert "--no-container-remap-root" in sample("srun")
    assert "--container-remap-root" in sample("srun", root=True).replace("--no-container-remap-root", "")


def test_the_compile_step_is_the_same_step_with_its_words() -> None:
    image = torch_image(target="trn1", layers=("neuron",), versions={"torch-neuronx": "2.7"}, env={})
    text = write_launch(("./run.sh",), form="sbatch", image=image, nodes=16, compile=True)
    first, second = text.split("\nsrun ")[1:]
    assert first.replace("neuron_parallel_compile ", "").strip() == second.strip()


def test_docker_starts_no_file() -> None:
    """Its name, which the author of the file chose, may be an image of Docker Hub, or an option."""
    with pytest.raises(SpecError, match="Docker starts no squashfs file: net"):
        write_launch(form="docker", image=torch_image(docker=""))


def test_an_edf_replaces_no_file(tmp_path: Path) -> None:
    (tmp_path / "srun").write_text(
        '#!/bin/sh\nfor word; do case $word in --environment=*) cat "${word#*=}";; esac; done\n'
    )
    (tmp_path / "srun").chmod(0o755)
    (tmp_path / "pyproject.toml").write_text("precious")
    script = sample("edf", name="pyproject")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for _ in range(2):
        done = subprocess.run(["sh", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "entrypoint = false" in done.stdout
    assert (tmp_path / "pyproject.toml").read_text() == "precious"
    assert [file.name for file in tmp_path.glob("*.toml")] == ["pyproject.toml"]


def test_files_of_hosts_have_a_limit(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for file in (tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(SpecError, match="cannot be read"):
            parse_hosts("", str(file))


def test_a_version_of_very_many_digits_is_compared() -> None:
    assert not older("9" * 5000, "1.2") and older("1.2", "9" * 5000)
