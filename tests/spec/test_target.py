"""Hardware targets: those that ship, and mistakes in one."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.core.errors import SpecError
from envbuild.core.reasoned import Reasoned
from envbuild.spec import target
from envbuild.spec.launch_profile import Nics, Threshold
from envbuild.spec.project import PACKAGE, Project

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
    # launch decides these from the fabric, the image and the names of devices
    assert not {"NCCL_NET", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "UCX_NET_DEVICES", "UCX_TLS"} & set(found.launch.env)
    # names of devices belong to sites, but for machine types of a cloud
    assert not (found.nics and (found.nics.names or found.nics.interface)) or "Azure" in found.description


def test_contents_of_a_target(small: Project) -> None:
    node = target.load_target("node", small)
    assert (node.sm, node.sm_arch, node.cuda_arch_list) == ("9.0", "90", "9.0")
    assert node.gencode == "-gencode=arch=compute_90,code=sm_90"
    assert (node.gpus, node.arch, node.machine, node.cpu) == (2, "amd64", "x86_64", "x86-64-v2")
    assert (node.driver, node.driver_because) == ("580.65.06", "a test")
    assert node.thresholds == {"node_allreduce_busbw": Threshold(460.0, "GB/s", "a test")}
    assert node.env == {"NVIDIA_VISIBLE_DEVICES": Reasoned("all", "a test")}
    assert node.launch.env == {"NCCL_NET": Reasoned("IB", "a test")}
    assert node.launch.job == ("--exclusive",)
    assert node.nics == Nics(2, 400, "InfiniBand")
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
thresholds: {node_allreduce_busbw: {at_least: "460", unit: GB/s}}
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
        ":9:14 threshold 'node_allreduce_busbw' needs a number, a unit and a reason",
        ":9:47 'at_least' must be a number, not text",
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
