"""Links inside a node: NVLink between GPUs, PCIe of GPUs and adapters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.doctor.model import FAIL, HARDWARE, MINOR, NOT_RUN, PASS, Need
from tests.support.node_files import NEED, Node, result_of

pytestmark = pytest.mark.unit

LINKS = {
    "a board of four without a switch": (
        "NVIDIA A100-SXM4-40GB",
        [["X", 4, 4, 4], [4, "X", 4, 4], [4, 4, "X", 4], [4, 4, 4, "X"]],
        PASS,
    ),
    "cards with bridges": ("NVIDIA RTX A6000", [["X", 4, 0, 0], [4, "X", 0, 0], [0, 0, "X", 4], [0, 0, 4, "X"]], PASS),
    "a board with a weak pair": ("NVIDIA H100 80GB HBM3", [["X", 18, 18], [18, "X", 17], [18, 17, "X"]], FAIL),
    "a board with half of its links": ("NVIDIA H100 80GB HBM3", [["X", 9], [9, "X"]], FAIL),
    "an H200 with half of its links": ("NVIDIA H200", [["X", 9], [9, "X"]], FAIL),
    "an H200 without links": ("NVIDIA H200", [["X", 18, 0], [18, "X", 0], [0, 0, "X"]], FAIL),
    "a B300": ("NVIDIA B300 SXM6 AC", [["X", 16], [16, "X"]], FAIL),
    "cards with bridges of four": ("NVIDIA H200 NVL", [["X", 6, 0], [6, "X", 0], [0, 0, "X"]], PASS),
    "a superchip": ("NVIDIA GH200 480GB", [["X", 6], [6, "X"]], PASS),
}


@pytest.mark.parametrize("name", LINKS)
def test_nvlinks_of_boards_and_of_cards(name: str, tmp_path: Path) -> None:
    model, rows, status = LINKS[name]
    node = Node(tmp_path)
    node.write("sys/module/nvidia/version", "580.95.05")
    names = [f"GPU{number}" for number in range(len(rows))]
    for number in range(len(rows)):
        node.write_gpu(f"0000:{number:02x}:00.0", number, model)
    cells = [["SYS" if cell == 0 else cell if cell == "X" else f"NV{cell}" for cell in row] for row in rows]
    lines = ["\t".join(["", *names]), *("\t".join([one, *row]) for one, row in zip(names, cells, strict=True))]
    (tmp_path / "topo").write_text("\n".join([*lines, "", "Legend:", ""]))
    node.program("nvidia-smi", f'case "$1" in topo) cat {tmp_path}/topo ;; *) exit 1 ;; esac')
    result = result_of(node.examine(Need()), "nvlink")
    assert result.status == status, result


def test_a_weak_pair_does_not_restart_the_fabric_manager(node: Node) -> None:
    """Its end ends all jobs of the node (ABORT_CUDA_JOBS_ON_FM_EXIT of fabricmanager.cfg)."""
    text = node.root.parent / "topo"
    text.write_text("\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNV18\tNV18\nGPU1\tNV18\tX\tNV17\nGPU2\tNV18\tNV17\tX\n\nLegend:\n")
    node.program("nvidia-smi", f'case "$1" in topo) cat {text} ;; *) exit 1 ;; esac')
    result = result_of(node.examine(), "nvlink")
    assert (result.status, "systemctl restart" in result.fix) == (FAIL, False)
    node.change_smi("Completed", "In Progress")
    fix = result_of(node.examine(), "fabric-manager").fix
    assert fix.index("without jobs: ") < fix.index("systemctl restart")


LINK = r"(PCIe Generation\n +Max +: )5(\n +Current +: )1$"
STATED = r"\g<1>{0}\g<2>{1}\n                Device Max : 5"
CARD = (r"NVIDIA H100 80GB HBM3", "NVIDIA L40S")


def state_links(node: Node, most: int, now: int) -> None:
    """State generation 5 for the second GPU, and others for the first; both are in use."""
    for gpu, numbers in ((0, (most, now)), (1, (5, 5))):
        node.change_smi(LINK, STATED.format(*numbers), gpu=gpu)
        node.change_smi("^    Clocks Event Reasons$", r"    Performance State : P0\n\g<0>", gpu=gpu)


def test_a_link_whose_maximum_is_below_the_others(node: Node) -> None:
    state_links(node, 3, 3)
    result = result_of(node.examine(), "gpu-pcie")
    assert (result.severity, result.detail) == (HARDWARE, "PCIe generation 3 of 5: 00000000:1B:00.0")
    for gpu in (0, 1):
        node.change_smi(*CARD, gpu=gpu)
    assert result_of(node.examine(), "gpu-pcie").severity == MINOR  # cards may be in slots of several kinds


def test_a_width_of_eight_beside_sixteen(node: Node) -> None:
    node.change_smi("16x", "8x")
    result = result_of(node.examine(), "gpu-pcie")
    assert (result.severity, result.detail) == (HARDWARE, "PCIe width 8 of 16: 00000000:1B:00.0")


@pytest.mark.parametrize(("speed", "status"), [("8.0 GT/s PCIe", FAIL), ("32.0 GT/s PCIe", PASS), ("", PASS)])
def test_a_slow_link_under_load(speed: str, status: str, node: Node) -> None:
    state_links(node, 5, 3)
    node.write("sys/bus/pci/devices/0000:1b:00.0/current_link_speed", speed)
    assert result_of(node.examine(), "gpu-pcie").status == status


def test_an_older_machine_is_no_fault(node: Node) -> None:
    for gpu in (0, 1):
        node.change_smi(LINK, STATED.format(4, 1), gpu=gpu)
    result = result_of(node.examine(), "gpu-pcie")
    assert (result.status, result.detail) == (PASS, "width 16x, generation 4 of this machine, 5 of the GPU")


def test_a_gpu_above_its_target_temperature_is_minor(node: Node) -> None:
    node.change_smi(r"^    Clocks Event Reasons$", "    Clocks Event Reasons\n        SW Thermal Slowdown : Active")
    assert result_of(node.examine(), "gpu-pcie").severity == MINOR


@pytest.mark.parametrize(("width", "need", "severity"), [
    ("8", NEED, HARDWARE), ("8", Need(), MINOR), ("8", replace(NEED, rate=200), MINOR), ("16", NEED, ""),
])  # fmt: skip
def test_the_link_of_an_adapter(width: str, need: Need, severity: str, node: Node) -> None:
    assert result_of(node.examine(), "rdma-pcie").status == NOT_RUN
    for name, lanes in (("mlx5_0", "16"), ("mlx5_1", width)):
        node.write(f"sys/class/infiniband/{name}/device/current_link_speed", "32.0 GT/s PCIe")
        node.write(f"sys/class/infiniband/{name}/device/current_link_width", lanes)
    result = result_of(node.examine(need), "rdma-pcie")
    assert (result.severity, result.status) == (severity, FAIL if severity else PASS)
