"""Tasks, GPUs and CPUs of a job."""

from __future__ import annotations

import pytest

from envbuild.core.errors import SpecError
from envbuild.net.numa import Numa
from envbuild.net.slurm_site import NodeSettings
from tests.support.launching import make_plan, option_values, site, torch_image, write_launch

pytestmark = pytest.mark.unit


def options(command: str = "python train.py", target: str = "azure-ndv4", **request: object) -> dict[str, str]:
    arch = "arm64" if target == "gb200-nvl" else "amd64"
    return option_values(make_plan(command.split(), image=torch_image(target=target, arch=arch), **request))


def test_one_task_for_each_gpu_and_all_cpus_shared() -> None:
    found = options()
    assert (found["--ntasks-per-node"], found["--gpus-per-node"], found["--cpus-per-task"]) == ("8", "8", "12")
    assert found["--exclusive"] == ""
    assert found["--mem"] == "0"


def test_one_task_where_the_command_starts_the_ranks() -> None:
    found = options("torchrun --nproc-per-node 8 train.py")
    assert (found["--ntasks-per-node"], found["--cpus-per-task"]) == ("1", "96")
    assert "--cpu-bind" not in found


def test_some_gpus_of_a_node_get_their_share() -> None:
    found = options(gpus=2)
    assert (found["--ntasks-per-node"], found["--gpus-per-node"], found["--cpus-per-task"]) == ("2", "2", "12")
    assert not {"--exclusive", "--cpu-bind", "--mem"} & set(found)


@pytest.mark.parametrize(
    ("target", "tasks", "cpus"),
    [("h100-ib", "8", "12"), ("gb200-nvl", "4", "36"), ("p5-efa", "8", "24"), ("trn1", "1", "128"), ("cpu", "1", None)],
)
def test_what_targets_have(target: str, tasks: str, cpus: str | None) -> None:
    found = options(target=target)
    assert (found["--ntasks-per-node"], found.get("--cpus-per-task")) == (tasks, cpus)


def test_cpus_per_task_are_options_of_job_and_step() -> None:
    plan = make_plan()
    assert "--cpus-per-task=12" in [item.text for item in plan.job]
    assert "--cpus-per-task=12" in [item.text for item in plan.step]
    assert "--kill-on-bad-exit=1" in [item.text for item in plan.step]


def test_the_numa_nodes_of_a_site_replace_those_of_the_target() -> None:
    nodes = NodeSettings(numa=Numa(2, 64, (0, 0, 0, 0, 1, 1, 1, 1)))
    found = option_values(make_plan(image=torch_image(target="h100-ib"), at=site(nodes=nodes)))
    assert found["--cpus-per-task"] == "16"
    assert found["--cpu-bind"].startswith("mask_cpu:ffffffffffffffff,")
    with pytest.raises(SpecError, match="numa of the site lists 2 GPUs"):
        make_plan(at=site(nodes=NodeSettings(numa=Numa(1, 4, (0, 0)))))


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"tasks_per_node": 9}, "--tasks-per-node 9: the job has 8 GPUs on a node, and each task needs one of its own"),
        ({"tasks_per_node": 3, "gpus": 2}, "--tasks-per-node 3: the job has 2 GPUs on a node"),
        ({"gpus": 9}, "--gpus 9: a node of target 'azure-ndv4' has 8"),
        ({"nodes": 0}, "-N 0 is not a number of nodes"),
        ({"nodes": -1}, "-N -1 is not a number of nodes"),
    ],
)
def test_more_than_there_is(request_: dict[str, int], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        make_plan(**request_)
    assert caught.value.message.startswith(message)
    assert caught.value.hint.startswith(("type ", "leave out"))
    assert caught.value.exit_code == 2


def test_several_tasks_on_nodes_without_gpus() -> None:
    image = torch_image(target="cpu", layers=("openmpi",), versions={}, env={})
    assert option_values(make_plan(("hostname",), image=image, tasks_per_node=64))["--ntasks-per-node"] == "64"
    with pytest.raises(SpecError, match="a node of target 'cpu' has no GPU"):
        make_plan(("hostname",), image=image, gpus=1)


def test_the_command_line_beats_the_options_of_the_site() -> None:
    """Each owner overrides those before it: what is typed beats what `job` and `step` of a site state."""
    nodes = NodeSettings(
        job=("--time=01:00:00", "--partition=slow", "--ntasks-per-node=8", "--gpus-per-node=8", "--cpus-per-task=9"),
        step=("--cpus-per-task=9",),
    )
    typed = {"time": "04:00:00", "partition": "fast", "tasks_per_node": 4, "gpus": 4, "cpus_per_task": 3}
    plan = make_plan(at=site(nodes=nodes), **typed)
    for options in (plan.job, plan.step):
        assert len({item.name for item in options}) == len(options)
    found = option_values(plan)
    wanted = {
        "--time": "04:00:00", "--partition": "fast", "--ntasks-per-node": "4", "--gpus-per-node": "4",
        "--cpus-per-task": "3",
    }  # fmt: skip
    assert {name: found[name] for name in wanted} == wanted
    assert {item.owner for item in plan.job if item.name in wanted} == {"command line"}
    assert option_values(make_plan(at=site(nodes=nodes)))["--time"] == "01:00:00"


@pytest.mark.parametrize("form", ["torchrun", "docker", "deepspeed", "trainjob"])
def test_ranks_of_a_node_are_the_workers_of_its_launcher(form: str) -> None:
    plan = make_plan(form=form, tasks_per_node=4)
    assert plan.workers == 4
    assert plan.tasks_per_node == (1 if form in ("torchrun", "trainjob") else 4)
    with pytest.raises(SpecError, match="--tasks-per-node 9: the job has 8 GPUs"):
        make_plan(form=form, tasks_per_node=9)


@pytest.mark.parametrize("form", ["srun", "sbatch", "torchrun", "edf"])
def test_the_name_of_the_job_reaches_slurm(form: str) -> None:
    nodes = NodeSettings(job=("--job-name=theirs", "--output=/logs/%j.out"))
    typed = write_launch(form=form, at=site(nodes=nodes), name="mine")
    assert typed.count("--job-name=") == typed.count("--job-name=mine") == 1
    assert typed.count("--output=") == typed.count("--output=/logs/%j.out") == 1
    assert write_launch(form=form, at=site(nodes=nodes)).count("--job-name=theirs") == 1


@pytest.mark.parametrize(("devices", "workers"), [(0, 32), (8, 16), (1, 2)])
def test_workers_of_some_devices_of_a_node(devices: int, workers: int) -> None:
    """A Trainium device has two cores, each with a worker."""
    image = torch_image(target="trn1", layers=("neuron",), versions={}, env={})
    assert make_plan(form="torchrun", image=image, gpus=devices).workers == workers


@pytest.mark.parametrize("form", ["srun", "sbatch", "torchrun"])
def test_the_number_of_tasks_is_that_of_the_launch_within_a_job_as_well(form: str) -> None:
    """srun takes SLURM_NTASKS of the job, and --ntasks-per-node for a limit: one rank started in place of eight."""
    found = option_values(make_plan(form=form, nodes=2))
    assert int(found["--ntasks"]) == 2 * int(found["--ntasks-per-node"])
    own = NodeSettings(job=("--ntasks-per-node=3",))
    assert option_values(make_plan(form=form, at=site(nodes=own), nodes=2))["--ntasks"] == "6"
    for job in (("--ntasks=5",), ("--ntasks-per-node=$N",)):
        found = option_values(make_plan(form=form, at=site(nodes=NodeSettings(job=job)), nodes=2))
        assert found.get("--ntasks", "") == ("5" if "5" in job[0] else "")


def test_variables_arrive_also_where_slurm_exports_none() -> None:
    """SLURM_EXPORT_ENV, which SBATCH_EXPORT sets for the steps of a job, holds for a step without --export."""
    none = NodeSettings(job=("--export=NONE",))
    for form in ("srun", "sbatch", "torchrun"):
        assert option_values(make_plan(form=form))["--export"] == "ALL"
    assert write_launch(("hostname",), at=site(nodes=none)).count("--export=") == 1
    more = NodeSettings(job=("--export=ALL,A=1",))
    for form in ("srun", "sbatch", "edf"):
        text = write_launch(("hostname",), form=form, at=site(nodes=more))
        assert text.count("--export=") == text.count("--export=ALL,A=1") == 1


def test_a_name_with_slashes_is_no_path_of_the_output() -> None:
    for name, file in (("exp/lr3", "exp-lr3"), ("../50%", "..-50%%"), ("a\\b/c", "a-b-c"), ("plain", "%x")):
        assert f"#SBATCH --output={file}_%j.out\n" in write_launch(("hostname",), form="sbatch", name=name)
