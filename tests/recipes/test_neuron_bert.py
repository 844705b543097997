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
OUTPUT_DIR=output
mkdir -p $OUTPUT_DIR
sudo sysctl -w net.ipv4.ip_local_reserved_ports=48620 || exit 1
torchrun $DISTRIBUTED_ARGS dp_bert_large_hf_pretrain_hdf5.py $ADD_ARGS \\
        --resume_ckpt_path ../ckpt_28125.pt
if [ -e $OUTPUT_DIR/ckpt_$MAX_STEPS.pt ]; then cp -f $OUTPUT_DIR/ckpt_$MAX_STEPS.pt ../; fi
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
    folder = tmp_path / "job"
    folder.mkdir(exist_ok=True)
    return subprocess.run([tools / "run_it.sh"], env=environ, cwd=folder, capture_output=True, text=True)


def test_the_script_runs_without_rights_and_without_scontrol(tmp_path: Path) -> None:
    """The sample ends at `sudo sysctl … || exit 1` in a container."""
    assert repair(tmp_path, SCRIPT).returncode == 0
    done = start(tmp_path, SLURM_NTASKS="2", SLURM_JOB_NODELIST="trn1-[3-4]", NEURON_COMPILE_CACHE_URL="/cache")
    assert done.returncode == 0, done.stderr
    program = tmp_path / "opt" / "dp_bert_large_hf_pretrain_hdf5.py"
    assert done.stdout.splitlines() == [f"torchrun --master_addr trn1-3 {program} --resume_ckpt_path ckpt_28125.pt"]
    assert "sysctl -w net.ipv4.ip_local_reserved_ports=48620" in done.stderr or done.stderr == ""
    assert not (tmp_path / "job" / "run_installed_neuron_pkgs.txt").exists()


def test_the_checkpoint_between_the_phases_is_in_the_folder_of_the_job(tmp_path: Path) -> None:
    """The sample has it in the folder above, which in a container is rarely one that outlives it."""
    repair(tmp_path, SCRIPT)
    (tmp_path / "job" / "output").mkdir(parents=True)
    (tmp_path / "job" / "output" / "ckpt_7032.pt").touch()
    done = start(tmp_path, MAX_STEPS="7032")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "job" / "ckpt_7032.pt").exists() and not (tmp_path / "ckpt_7032.pt").exists()


def test_results_in_the_root_folder_are_refused(tmp_path: Path) -> None:
    """A container starts in /, which ends with it or cannot be written."""
    repair(tmp_path, SCRIPT)
    program = tmp_path / "opt" / "bin" / "run_it.sh"
    done = subprocess.run([program], cwd="/", capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 1 and "the results would be in /" in done.stderr and not done.stdout


def test_a_job_without_a_lasting_cache_is_refused(tmp_path: Path) -> None:
    repair(tmp_path, SCRIPT)
    done = start(tmp_path, SLURM_NTASKS="2", SLURM_JOB_NODELIST="trn1-[3-4]")
    assert done.returncode == 1 and "NEURON_COMPILE_CACHE_URL is not set" in done.stderr and not done.stdout
    assert start(tmp_path).returncode == 0  # one node outside of Slurm: the compiler's own folder


@pytest.mark.parametrize("line", ["sudo sysctl", "    MASTER_ADDR=", "        CACHE_DIR=", "torchrun ", "mkdir "])
def test_a_sample_without_a_line_to_change_fails_the_build(tmp_path: Path, line: str) -> None:
    other = "".join(text for text in SCRIPT.splitlines(keepends=True) if not text.startswith(line))
    assert other != SCRIPT and repair(tmp_path, other).returncode != 0


@pytest.mark.parametrize("line", ["sudo reboot", "mv output/ckpt_1.pt ../", "load=../ckpt_1.pt", "ls ../ckpt_1.pt"])
def test_a_sample_with_another_sudo_or_folder_fails_the_build(tmp_path: Path, line: str) -> None:
    assert repair(tmp_path, f"{SCRIPT}{line}\n").returncode != 0


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
    # tensorboard 2.14 imports pkg_resources and six, and its program uses names that NumPy 2 removed
    assert {"setuptools<82", "six", "numpy<2"} <= set(runtime.python)


def test_the_licences_of_the_samples_parts_are_in_the_image() -> None:
    made = recipe("neuron-bert")
    assert "LICENSES.txt /opt/neuron-bert/" in commands(made, image(made, target="trn1", base="ubuntu:22.04"))
