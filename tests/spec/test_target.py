"""Hardware targets: those that ship, and mistakes in one."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.core.errors import SpecError
from envbuild.spec import target
from envbuild.spec.project import PACKAGE, Project
from envbuild.spec.target import Reasoned, Threshold

pytestmark = pytest.mark.unit

SHIPPED = sorted(path.stem for path in (PACKAGE / "targets").glob("*.yaml"))


def test_these_ship() -> None:
    assert {"cpu", "h100-ib", "a100-ib"} <= set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_target_is_whole(name: str) -> None:
    found = target.load_target(name, Project())
    assert found.name == name
    assert found.description
    # what a job should be able to change must not be in the image, where it would beat the job's own value
    assert not [key for key in found.env if key.startswith(("NCCL_", "UCX_", "UCC_", "CUDA_"))]
    if found.sm:
        # an undocumented driver is not invented: the version matrix then requires it
        assert (
            found.driver
            or "The driver of these hosts is not documented" in (PACKAGE / f"targets/{name}.yaml").read_text()
        )
        assert {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"} <= set(found.env)
    assert ("MELLANOX_VISIBLE_DEVICES" in found.env) == (found.fabric == "infiniband")
    for nic in found.launch.env.get("UCX_NET_DEVICES", Reasoned("", "")).value.split(","):
        assert not nic or nic.removesuffix(":1") in found.nics


def test_the_cpu_mask_of_the_a100_nodes() -> None:
    """Eight ranks on four NUMA nodes of 24 cores: two ranks a node, all 96 cores covered."""
    (mask,) = (item for item in target.load_target("a100-ib", Project()).launch.srun if item.startswith("--cpu-bind"))
    masks = [int(part, 16) for part in mask.removeprefix("--cpu-bind=mask_cpu:").split(",")]
    assert [part.bit_count() for part in masks] == [24] * 8
    assert [(part & -part).bit_length() // 24 for part in masks] == [1, 1, 0, 0, 3, 3, 2, 2]
    assert sum(set(masks)) == 2**96 - 1


def test_contents_of_a_target(small: Project) -> None:
    node = target.load_target("node", small)
    assert (node.sm, node.sm_arch, node.cuda_arch_list) == ("9.0", "90", "9.0")
    assert node.gencode == "-gencode=arch=compute_90,code=sm_90"
    assert (node.gpus, node.arch, node.machine, node.cpu) == (2, "amd64", "x86_64", "x86-64-v2")
    assert (node.driver, node.driver_because) == ("580.65.06", "a test")
    assert node.thresholds == {"allreduce": Threshold(460.0, "GB/s", "a test")}
    assert node.env == {"NVIDIA_VISIBLE_DEVICES": Reasoned("all", "a test")}
    assert node.launch.env == {"NCCL_NET": Reasoned("IB", "a test")}
    assert node.launch.srun == ("--exclusive",)
    box = target.load_target("box", small)
    assert (box.sm, box.sm_arch, box.gencode, box.gpus, box.fabric) == ("", "", "", 0, "none")


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        """schema: 1
gpu: H100
sm: 9.0
gpus: eight
arch: x86_64
cpu: x86-64-v9
fabric: infinband
driver: {floor: "580"}
thresholds: {speed: {at_least: "460", unit: GB/s}}
env:
  A: all
  B: {value: "${X}", because: y}
  C-D: {value: "1", because: y}
launch: {sbatch: []}
"""
    )
    with pytest.raises(SpecError) as caught:
        target.read_target(path)
    messages = [f"{finding.where.removeprefix(str(path))} {finding.message}" for finding in caught.value.findings]
    assert messages == [
        ":3:5 'sm' must be text, not a number",
        ":4:7 'gpus' must be a whole number, not text",
        ":5:7 'arch' cannot be 'x86_64'",
        ":6:6 'cpu' cannot be 'x86-64-v9'",
        ":7:9 'fabric' cannot be 'infinband'",
        ":8:9 'driver' needs a floor and a reason",
        ":9:14 threshold 'speed' needs a number, a unit and a reason",
        ":9:32 'at_least' must be a number, not text",
        ":11:6 'A' must be keys with values, not text",
        ":12:14 'B' contains ${: enroot would replace it with a variable of the job, or with nothing",
        ":13:3 'C-D' is not a variable name: use letters, digits and '_', not beginning with a digit",
        ":14:10 unknown key 'sbatch' for 'launch'",
    ]


@pytest.mark.parametrize("value", ["90", "sm_90", "9", "9.0a", "0.9"])
def test_compute_capability(value: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f'schema: 1\ngpu: H100\nsm: "{value}"\ngpus: 8\n')
    with pytest.raises(SpecError, match="must be a compute capability"):
        target.read_target(path)


@pytest.mark.parametrize(
    "lines", ["gpu: H100", 'sm: "9.0"', "gpus: 8", 'gpu: H100\nsm: "9.0"', 'gpu: H100\nsm: "9.0"\ngpus: 0']
)
def test_gpu_keys_are_complete_or_absent(lines: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"schema: 1\n{lines}\n")
    with pytest.raises(SpecError, match="'gpu', 'sm' and 'gpus' must be used together"):
        target.read_target(path)
