"""The sample of BERT on Trainium: its scripts after the repairs, and the first host of a list."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.recipes import commands, image, recipe, table

pytestmark = pytest.mark.unit

# The lines that the repairs are about, as dp_bert_hf_pretrain of aws-neuron-samples at 2015d65 has them.
SCRIPT = """#!/usr/bin/env bash
set -o pipefail
pip3 list | grep -e neuron > run_installed_neuron_pkgs.txt
sudo modprobe -r neuron; sudo modprobe neuron
DISTRIBUTED_ARGS=""
if [ ! -z "$SLURM_NTASKS" ]; then
    MASTER_ADDR=(`scontrol show hostnames $SLURM_JOB_NODELIST`)
    DISTRIBUTED_ARGS="--master_addr $MASTER_ADDR"
    if [ -z "$NEURON_COMPILE_CACHE_URL" ]; then
        CACHE_DIR=$HOME/neuron_cache/bert/`hostname`
        export NEURON_CC_FLAGS="--cache_dir=$CACHE_DIR"
    fi
fi
sudo sysctl -w net.ipv4.ip_local_reserved_ports=48620 || exit 1
torchrun $DISTRIBUTED_ARGS dp_bert_large_hf_pretrain_hdf5.py $ADD_ARGS
"""


def repair(tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run the repairs of the recipe on one script, in a folder instead of /opt/neuron-bert."""
    tools = tmp_path / "opt" / "bin"
    tools.mkdir(parents=True, exist_ok=True)
    (tools / "run_it.sh").write_text(script)
    (tools / "first-node").write_text(table("neuron-bert").FIRST)
    (tools / "torchrun").write_text('#!/bin/sh\necho "torchrun $*"\n')
    for path in tools.iterdir():
        path.chmod(0o755)
    made = recipe("neuron-bert")
    text = " && ".join(made.repairs()).replace(made.prefix, str(tmp_path / "opt"))
    return subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True)


def start(tmp_path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    tools = tmp_path / "opt" / "bin"
    environ = {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(tmp_path), **env}
    return subprocess.run([tools / "run_it.sh"], env=environ, cwd=tmp_path, capture_output=True, text=True)


def test_the_script_runs_without_rights_and_without_scontrol(tmp_path: Path) -> None:
    """The sample ends at `sudo sysctl … || exit 1` in a container."""
    assert repair(tmp_path, SCRIPT).returncode == 0
    done = start(tmp_path, SLURM_NTASKS="2", SLURM_JOB_NODELIST="trn1-[3-4]", NEURON_COMPILE_CACHE_URL="/cache")
    assert done.returncode == 0, done.stderr
    program = tmp_path / "opt" / "dp_bert_large_hf_pretrain_hdf5.py"
    assert done.stdout.splitlines() == [f"torchrun --master_addr trn1-3 {program}"]
    assert "sysctl -w net.ipv4.ip_local_reserved_ports=48620" in done.stderr or done.stderr == ""
    assert not (tmp_path / "run_installed_neuron_pkgs.txt").exists()


def test_a_job_without_a_lasting_cache_is_refused(tmp_path: Path) -> None:
    repair(tmp_path, SCRIPT)
    done = start(tmp_path, SLURM_NTASKS="2", SLURM_JOB_NODELIST="trn1-[3-4]")
    assert done.returncode == 1 and "NEURON_COMPILE_CACHE_URL is not set" in done.stderr and not done.stdout
    assert start(tmp_path).returncode == 0  # one node outside of Slurm: the compiler's own folder


@pytest.mark.parametrize("line", ["sudo sysctl", "    MASTER_ADDR=", "        CACHE_DIR=", "torchrun "])
def test_a_sample_without_a_line_to_change_fails_the_build(tmp_path: Path, line: str) -> None:
    other = "".join(text for text in SCRIPT.splitlines(keepends=True) if not text.startswith(line))
    assert other != SCRIPT and repair(tmp_path, other).returncode != 0


def test_a_sample_with_another_sudo_fails_the_build(tmp_path: Path) -> None:
    assert repair(tmp_path, SCRIPT + "sudo reboot\n").returncode != 0


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("compute1-st-queue1-i1-[1-16]", "compute1-st-queue1-i1-1"),
        ("node[003-016,020],login", "node003"),
        ("node[7,9]", "node7"),
        ("login,node[1-2]", "login"),
        ("rack[1-2]-n3", "rack1-n3"),
        ("one", "one"),
        ("a1,b2", "a1"),
    ],
)
def test_the_first_host_of_a_list(tmp_path: Path, hosts: str, first: str) -> None:
    program = tmp_path / "first-node"
    program.write_text(table("neuron-bert").FIRST)
    done = subprocess.run(["/bin/sh", program, hosts], capture_output=True, text=True, check=True)
    assert done.stdout == f"{first}\n"


def test_the_image_has_what_the_scripts_run() -> None:
    made = recipe("neuron-bert")
    runtime = made.runtime(image(made, target="trn1", base="ubuntu:22.04"))
    assert {"curl", "jq", "rsync"} <= set(runtime.debian) and "transformers==4.44.0" in runtime.python
    assert "setuptools<82" in runtime.python  # tensorboard 2.14 imports pkg_resources when it starts


def test_the_licences_of_the_samples_parts_are_in_the_image() -> None:
    made = recipe("neuron-bert")
    assert "LICENSES.txt /opt/neuron-bert/" in commands(made, image(made, target="trn1", base="ubuntu:22.04"))
