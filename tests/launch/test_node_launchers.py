"""Commands that start the ranks of one node: refused on several nodes, unless they name a rendezvous."""

from __future__ import annotations

import pytest

from envbuild.core.errors import SpecError
from tests.support.launching import make_plan, option_values, write_launch

pytestmark = pytest.mark.unit

C10D = "--nnodes=2 --rdzv-backend c10d --rdzv_endpoint=n1:29400 --nproc_per_node 8"


@pytest.mark.parametrize("form", ["srun", "sbatch", "edf", "docker"])
@pytest.mark.parametrize(
    "command",
    [
        "torchrun train.py",
        "torchrun --nproc-per-node 8 train.py --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=n1",
        "torchrun --nnodes=2 --master_addr=n1 train.py",
        "torchrun --standalone --nproc_per_node=8 train.py",
        "python -m torch.distributed.run --nproc_per_node=8 train.py",
        "deepspeed train.py --deepspeed_config ds.json",
        "accelerate launch --num_processes 16 train.py",
        "python ./deepy.py train.py conf.yml",
        "mpirun -n 16 ./solver",
    ],
)
def test_a_launcher_of_one_node_is_refused_on_two(command: str, form: str) -> None:
    with pytest.raises(SpecError, match="each node would run alone") as caught:
        write_launch(command.split(), form=form, nodes=2, hosts=("n1", "n2") if form == "docker" else ())
    assert caught.value.hint
    write_launch(command.split(), form=form)  # one node is what it is for


@pytest.mark.parametrize(
    "command",
    [
        f"torchrun {C10D} train.py",
        f"python -m torch.distributed.run {C10D} train.py",
        "accelerate launch --num_machines 2 --rdzv_backend c10d --main_process_ip n1 train.py",
        "accelerate launch --config_file c.yaml train.py",
        "bash train.sh",
    ],
)
def test_a_rendezvous_of_all_nodes_is_accepted(command: str) -> None:
    assert option_values(make_plan(command.split(), nodes=2))["--nodes"] == "2"


def test_torchrun_reads_its_rendezvous_from_variables() -> None:
    env = {"PET_NNODES": "2", "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "n1:29400"}
    make_plan(["torchrun", "train.py"], nodes=2, env=env)


def test_the_hint_is_the_form_with_the_same_program() -> None:
    with pytest.raises(SpecError) as caught:
        make_plan(["torchrun", "--nproc_per_node=8", "train.py", "--name", "a b"], nodes=2)
    assert caught.value.hint == "--as torchrun -- train.py --name 'a b'"
    write_launch(["train.py", "--name", "a b"], form="torchrun", nodes=2)


def test_a_launcher_is_started_once_on_a_node() -> None:
    with pytest.raises(SpecError, match="would run 8 times on each"):
        make_plan(["torchrun", "--nproc_per_node=8", "train.py"], tasks_per_node=8)


def test_torchrun_with_one_rank_on_a_node_with_gpus_has_a_warning() -> None:
    warned = [line for line in make_plan(["torchrun", "train.py"]).warnings if "--nproc_per_node=8" in line]
    assert len(warned) == 1
    for command in (["torchrun", "--nproc-per-node", "auto", "train.py"], ["deepspeed", "train.py"]):
        assert not any("nproc" in line for line in make_plan(command).warnings)
