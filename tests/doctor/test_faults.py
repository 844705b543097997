"""One fault at a time on a healthy node: its check fails, with a command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.doctor.model import ADMINISTRATOR, FAIL, HARDWARE, MINOR, NOT_RUN, USER
from tests.support.node_files import TEXTS, Node, result_of

pytestmark = pytest.mark.unit


FAULTS: dict[str, tuple[Callable[[Node], object], str, str]] = {
    "an old driver": (
        lambda node: node.write("sys/module/nvidia/version", "550.54.15"),
        "nvidia-driver",
        ADMINISTRATOR,
    ),
    "no driver": (
        lambda node: (
            (node.root / "sys/module/nvidia/version").unlink() or (node.root / "proc/driver/nvidia/version").unlink()
        ),
        "nvidia-driver",
        ADMINISTRATOR,
    ),
    "libraries of another driver": (
        lambda node: node.link("usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.570.1.2"),
        "nvidia-driver",
        ADMINISTRATOR,
    ),
    "nvidia-smi fails": (
        lambda node: node.program(
            "nvidia-smi", "echo 'Unable to determine the device handle: GPU is lost' >&2; exit 15"
        ),
        "nvidia-driver",
        ADMINISTRATOR,
    ),
    "mixed models": (lambda node: node.write_gpu("0000:43:00.0", 1, "NVIDIA A100-SXM4-80GB"), "gpu-count", USER),
    "another model": (
        lambda node: [node.write_gpu(slot, 0, "NVIDIA A100-SXM4-80GB") for slot in ("0000:1b:00.0", "0000:43:00.0")],
        "target",
        USER,
    ),
    "a GPU off the bus": (
        lambda node: (
            (node.root / "proc/driver/nvidia/gpus/0000:43:00.0/information").unlink()
            or (node.root / "proc/driver/nvidia/gpus/0000:43:00.0").rmdir()
        ),
        "gpu-count",
        HARDWARE,
    ),
    "a device file is missing": (lambda node: (node.root / "dev/nvidia1").unlink(), "gpu-devices", ADMINISTRATOR),
    "an XID": (lambda node: node.write("dev/kmsg", (TEXTS / "kernel.txt").read_text()), "xid", HARDWARE),
    "a program's XID": (lambda node: node.write("dev/kmsg", "NVRM: Xid (PCI:0000:1b:00): 31, pid=1\n"), "xid", MINOR),
    "errors of GPU memory": (
        lambda node: node.write("dev/kmsg", "NVRM: Xid (PCI:0000:1b:00): 94, pid=1, Contained\n"),
        "xid",
        MINOR,
    ),
    "a program was ended": (
        lambda node: node.write("dev/kmsg", "NVRM: Xid (PCI:0000:1b:00): 45, pid=1, Ch 00000008\n"),
        "xid",
        MINOR,
    ),
    "a row was not recorded": (
        lambda node: node.write("dev/kmsg", "NVRM: Xid (PCI:0000:1b:00): 64, pid=1\n"),
        "xid",
        ADMINISTRATOR,
    ),
    "a link is down": (
        lambda node: node.write_port("mlx5_1", state="1: DOWN", physical="2: Polling"),
        "rdma-ports",
        HARDWARE,
    ),
    "no subnet manager": (lambda node: node.write_port("mlx5_1", state="2: INIT"), "rdma-ports", ADMINISTRATOR),
    "a slow link": (lambda node: node.write_port("mlx5_1", rate="200 Gb/sec (4X HDR)"), "rdma-ports", HARDWARE),
    "one firmware": (lambda node: node.write_port("mlx5_1", firmware="28.39.1002"), "rdma-firmware", MINOR),
    "no file of verbs": (lambda node: (node.root / "dev/infiniband/uverbs1").unlink(), "verbs-devices", ADMINISTRATOR),
    "verbs find one device": (
        lambda node: node.program("ibv_devinfo", "head -n 10 " + str(TEXTS / "ibv_devinfo.txt")),
        "verbs-devices",
        ADMINISTRATOR,
    ),
    "no GPUDirect": (
        lambda node: [
            (node.root / "sys/module/nvidia_peermem/version").unlink(),
            node.write("proc/driver/nvidia/version", "NVRM version: Kernel Module  580.95.05  x"),
        ],
        "gpudirect",
        ADMINISTRATOR,
    ),
    "locked memory of slurmd": (
        lambda node: node.write("proc/77/limits", "Max locked memory  65536  65536 bytes"),
        "memlock",
        ADMINISTRATOR,
    ),
    "an old kernel": (lambda node: node.write("proc/sys/kernel/osrelease", "4.18.0-553.el8"), "kernel", MINOR),
    "an old CPU": (
        lambda node: node.write("proc/cpuinfo", "flags : pni ssse3 sse4_1 sse4_2 popcnt cx16 lahf_lm"),
        "cpu",
        HARDWARE,
    ),
    "another architecture": (lambda node: node.write("proc/sys/kernel/arch", "aarch64"), "cpu", HARDWARE),
    "a drained node": (lambda node: node.prints("scontrol", "scontrol.lines.txt"), "slurm-node", ADMINISTRATOR),
    "no pyxis": (lambda node: node.program("srun", "echo '  --help'; echo '  --usage'"), "pyxis", MINOR),
    "no PMIx": (lambda node: node.program("srun", "echo none; echo pmi2"), "slurm-mpi", MINOR),
    "few processes in the cgroup": (
        lambda node: [
            node.write("proc/self/cgroup", "0::/job/step"),
            node.write("sys/fs/cgroup/cgroup.controllers", "pids"),
            node.write("sys/fs/cgroup/job/pids.max", "100"),
            node.write("sys/fs/cgroup/job/step/pids.max", "max"),
        ],
        "cgroup",
        MINOR,
    ),
    "no Docker Engine": (
        lambda node: node.program("docker", """echo '{"Client": {"Version": "28"}}'"""),
        "docker",
        MINOR,
    ),
    "the Engine's socket": (
        lambda node: node.program("docker", "echo 'permission denied while connecting' >&2; exit 1"),
        "docker",
        MINOR,
    ),
    "no file of GDRCopy": (lambda node: node.write("sys/module/gdrdrv/version", "2.4"), "gdrcopy", MINOR),
    "no program of enroot's hook": (
        lambda node: (node.bin / "nvidia-container-cli").unlink(),
        "nvidia-container-toolkit",
        ADMINISTRATOR,
    ),
    "no hook": (lambda node: (node.root / "etc/enroot/hooks.d/98-nvidia.sh").unlink(), "enroot", ADMINISTRATOR),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_its_check_with_a_command(fault: str, node: Node) -> None:
    (node.bin / "head").symlink_to("/usr/bin/head")
    break_it, check, severity = FAULTS[fault]
    break_it(node)
    result = result_of(node.examine(), check)
    assert (result.status, result.severity) == (FAIL, severity), result
    assert result.fix


SMI_FAULTS = {  # of one GPU: what is replaced in the output of nvidia-smi, the check that fails
    "ECC is off": (
        "        Current                           : Enabled",
        "        Current                           : Disabled",
        "gpu-memory-errors",
    ),
    "pending rows": (
        "        Pending                           : No",
        "        Pending                           : Yes",
        "gpu-memory-errors",
    ),
    "memory errors": (
        "            DRAM Uncorrectable            : 0",
        "            DRAM Uncorrectable            : 4",
        "gpu-memory-errors",
    ),
    "rows that cannot be remapped": (
        "        Remapping Failure Occurred        : No",
        "        Remapping Failure Occurred        : Yes",
        "gpu-memory-errors",
    ),
    "partitions": (
        "    MIG Mode\n        Current                           : Disabled",
        "    MIG Mode\n        Current                           : Enabled",
        "gpu-settings",
    ),
    "reset": (
        "        Reset Required                    : No",
        "        Reset Required                    : Yes",
        "gpu-settings",
    ),
    "persistence": (
        "    Persistence Mode                      : Enabled",
        "    Persistence Mode                      : Disabled",
        "gpu-settings",
    ),
    "width": (
        "                Current                   : 16x",
        "                Current                   : 8x",
        "gpu-pcie",
    ),
    "slowdown": (
        "        HW Slowdown                       : Not Active",
        "        HW Slowdown                       : Active",
        "gpu-pcie",
    ),
    "firmware": (
        "    GSP Firmware Version                  : 580.95.05",
        "    GSP Firmware Version                  : 575.1",
        "gpu-versions",
    ),
    "fabric": (
        "        State                             : Completed",
        "        State                             : In Progress",
        "fabric-manager",
    ),
}


@pytest.mark.parametrize("fault", SMI_FAULTS)
def test_a_fault_of_one_gpu_in_nvidia_smi_fails(fault: str, node: Node, tmp_path: Path) -> None:
    before, after, check = SMI_FAULTS[fault]
    text = (TEXTS / "nvidia-smi-q.h100.txt").read_text()
    assert before in text
    (tmp_path / "smi.txt").write_text(text.replace(before, after, 1))
    node.program("nvidia-smi", f'case "$1" in topo) cat {TEXTS}/topo.tabs.txt ;; *) cat {tmp_path}/smi.txt ;; esac')
    assert result_of(node.examine(), check).status == FAIL


def test_a_truncated_nvidia_smi_passes_nothing_that_it_states(node: Node, tmp_path: Path) -> None:
    lines = (TEXTS / "nvidia-smi-q.h100.txt").read_text().splitlines(keepends=True)
    stated = ("gpu-memory-errors", "gpu-settings", "gpu-pcie", "gpu-versions", "fabric-manager")
    for count in range(0, len(lines), 7):
        (tmp_path / "smi.txt").write_text("".join(lines[:count]))
        node.program("nvidia-smi", f"cat {tmp_path}/smi.txt")
        found = node.examine()
        assert {result_of(found, check).status for check in stated} == {NOT_RUN}, count
