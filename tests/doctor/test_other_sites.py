"""Sites that are set up otherwise, and boots: none of these nodes is drained, and a fault beside it is."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from envbuild.doctor.checks import nvlink, user_namespaces
from envbuild.doctor.health_check import health_lines
from envbuild.doctor.model import ADMINISTRATOR, FAIL, HARDWARE, MINOR, NOT_RUN, PASS, Need
from tests.support.node_files import NEED, TEXTS, Node, result_of

pytestmark = pytest.mark.unit
STORAGE = "MT_0000000838"
ROCE = replace(NEED, layer="Ethernet")
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Release"
SLOTS = ("0000:1b:00.0", "0000:43:00.0")


def add_gid(node: Node, device: str, index: int, gid: str) -> None:
    """Add a GID of RoCE v2."""
    place = f"sys/class/infiniband/{device}/ports/1"
    node.write(f"{place}/gids/{index}", gid)
    node.write(f"{place}/gid_attrs/types/{index}", "RoCE v2")


def add_roce(node: Node, indices: tuple[int, ...]) -> None:
    """Make ports of RoCE, each with an IPv4 address at its index; 0: none."""
    for number, index in enumerate(indices):
        node.write_port(f"mlx5_{number}", layer="Ethernet")
        add_gid(node, f"mlx5_{number}", 1, "fe80:0000:0000:0000:0000:0000:0000:0001")
        if index:
            add_gid(node, f"mlx5_{number}", index, "0000:0000:0000:0000:0000:ffff:0a00:0001")


def name_all_gpus(node: Node, name: str) -> None:
    """Give the GPUs the name of another model."""
    for number, slot in enumerate(SLOTS):
        node.write_gpu(slot, number, name)
        node.change_smi("NVIDIA H100 80GB HBM3", name, gpu=number)


def test_a_frontend_with_another_index_is_named(node: Node) -> None:
    add_roce(node, (3, 3))
    node.write_port("mlx5_9", layer="Ethernet", rate="25 Gb/sec (1X EDR)", board=STORAGE)
    add_gid(node, "mlx5_9", 5, "0000:0000:0000:0000:0000:ffff:0a00:0009")
    result = result_of(node.examine(ROCE), "roce-gids")
    assert (result.status, result.detail) == (PASS, "NCCL_IB_GID_INDEX=3; others: mlx5_9:1 5")


def test_equal_ports_with_different_indices_are_minor(node: Node) -> None:
    add_roce(node, (3, 5))
    assert result_of(node.examine(ROCE), "roce-gids").severity == MINOR


def test_a_network_of_ipv6_has_an_index(node: Node) -> None:
    add_roce(node, (0, 0))
    assert result_of(node.examine(ROCE), "roce-gids").severity == ADMINISTRATOR
    for device in ("mlx5_0", "mlx5_1"):
        add_gid(node, device, 3, "fd00:0000:0000:0001:0000:0000:0000:0001")
    result = result_of(node.examine(ROCE), "roce-gids")
    assert (result.status, result.detail) == (PASS, "NCCL_IB_ADDR_FAMILY=AF_INET6, NCCL_IB_GID_INDEX=3")


def test_one_of_equal_ports_without_an_address_is_a_failure(node: Node) -> None:
    add_roce(node, (3, 3, 0, 3))
    result = result_of(node.examine(replace(ROCE, nics=4)), "roce-gids")
    assert (result.severity, "mlx5_2:1" in result.detail, "mlx5_2/1" in result.fix) == (ADMINISTRATOR, True, True)


def test_channels_of_imex_are_made_for_each_job(node: Node) -> None:
    for number in range(2):
        node.change_smi("ClusterUUID .*", "ClusterUUID : 1b4e28ba-2fa1-11d2-883f-0016d3cca427", gpu=number)
        node.change_smi("CliqueId .*", "CliqueId : 32766", gpu=number)
    need = replace(NEED, imex=True)
    assert result_of(node.examine(need), "imex").severity == ADMINISTRATOR  # the driver has no part for it
    node.write("proc/devices", "511 nvidia-caps-imex-channels")
    assert result_of(node.examine(need), "imex").status == NOT_RUN
    assert result_of(node.examine(need, SLURM_JOB_ID="7"), "imex").severity == ADMINISTRATOR


def test_a_gpu_of_a_tray_that_is_not_registered_needs_no_restart_of_imex(node: Node) -> None:
    node.change_smi("State  .*", "State : In Progress", gpu=1)
    found = node.examine(replace(NEED, imex=True))
    assert "imex" not in result_of(found, "fabric-manager").fix and result_of(found, "imex").status == NOT_RUN


@pytest.mark.parametrize(("seconds", "drains"), [("62.1 90.0", False), ("6200.1 90.0", True)])
def test_what_is_on_its_way_after_a_boot_drains_no_node(seconds: str, drains: bool, node: Node) -> None:
    node.write("proc/uptime", seconds)
    for number in range(2):
        node.change_smi("State  .*", "State : In Progress", gpu=number)
    node.write_port("mlx5_1", state="1: DOWN", physical="4: PortConfigurationTraining")
    found = node.examine()
    assert {result_of(found, name).drains for name in ("fabric-manager", "rdma-ports")} == {drains}
    assert bool(health_lines(found, "nhc")) == drains


def test_gpus_that_are_divided_have_no_nvlinks(node: Node) -> None:
    topo = node.root.parent / "topo.txt"
    topo.write_text((TEXTS / "topo.tabs.txt").read_text().replace("NV18", "SYS"))
    program = (node.bin / "nvidia-smi").read_text()
    (node.bin / "nvidia-smi").write_text(program.replace(f"{TEXTS}/topo.tabs.txt", str(topo)))
    assert result_of(node.examine(), "nvlink").status == FAIL
    node.change_smi(r"^    MIG Mode\n        Current .*", "    MIG Mode\n        Current : Enabled", gpu=1)
    program = (node.bin / "nvidia-smi").read_text()
    (node.bin / "nvidia-smi").write_text(program.replace(f"{TEXTS}/topo.tabs.txt", str(topo)))
    assert result_of(node.examine(), "nvlink").status == NOT_RUN


@pytest.mark.parametrize(("name", "severity"), [("NVIDIA L40S", MINOR), ("NVIDIA H100 80GB HBM3", HARDWARE)])
def test_a_card_may_be_in_a_slot_with_eight_lanes(name: str, severity: str, node: Node) -> None:
    if "L40S" in name:
        name_all_gpus(node, name)
    node.change_smi("(Link Width\n +Max +: 16x\n +Current +): 16x", r"\1: 8x", gpu=0)
    assert result_of(node.examine(replace(NEED, gpu=name)), "gpu-pcie").severity == severity


@pytest.mark.parametrize(("name", "severity"), [
    ("NVIDIA L4", MINOR), ("NVIDIA H100 80GB HBM3", ADMINISTRATOR), ("NVIDIA GeForce RTX 4090", ""),
])  # fmt: skip
def test_cards_work_without_gpudirect(name: str, severity: str, node: Node) -> None:
    (node.root / "sys/module/nvidia_peermem/version").unlink()
    node.write("proc/driver/nvidia/version", CLOSED)
    for number, slot in enumerate(SLOTS):
        node.write_gpu(slot, number, name)
    assert result_of(node.examine(), "gpudirect").severity == severity


def test_a_site_without_docker_and_enroot_needs_no_toolkit(node: Node) -> None:
    for name in ("nvidia-ctk", "nvidia-container-cli"):
        (node.bin / name).unlink()
    assert result_of(node.examine(), "nvidia-container-toolkit").severity == ADMINISTRATOR
    (node.bin / "enroot").unlink()
    assert result_of(node.examine(), "nvidia-container-toolkit").status == NOT_RUN


def test_a_cpu_node_needs_no_enroot(node: Node) -> None:
    (node.bin / "enroot").unlink()
    assert result_of(node.examine(), "enroot").severity == ADMINISTRATOR
    (node.root / "sys/module/nvidia/version").unlink()
    (node.root / "proc/driver/nvidia/version").unlink()
    for slot in SLOTS:
        (node.root / f"sys/bus/pci/devices/{slot}/vendor").unlink()
    assert result_of(node.examine(), "enroot").severity == MINOR


def test_an_older_driver_and_another_cpu_are_no_fault_of_a_node(node: Node) -> None:
    found = node.examine(replace(NEED, driver="600.1.2", arch="arm64"))
    assert {result_of(found, name).drains for name in ("nvidia-driver", "cpu")} == {False}
    assert health_lines(found, "nhc") == []


@pytest.mark.parametrize(("gpus", "severity"), [(1, MINOR), (2, HARDWARE)])
def test_a_gpu_that_is_excluded_and_not_in_slurm_is_minor(gpus: int, severity: str, node: Node) -> None:
    path = node.root / f"proc/driver/nvidia/gpus/{SLOTS[1]}/information"
    path.write_text(path.read_text().replace("GPU Excluded:\t No", "GPU Excluded:\t Yes"))
    node.program("scontrol", f"echo 'NodeName=n1 State=IDLE CfgTRES=cpu=1,gres/gpu={gpus} Gres=gpu:{gpus}'")
    found = node.examine()
    assert result_of(found, "gpu-count").severity == severity
    assert result_of(found, "slurm-gpus").status == (PASS if gpus == 1 else FAIL)


def test_all_ports_at_one_lower_rate_are_the_network_of_the_site(node: Node) -> None:
    for number in range(2):
        node.write_port(f"mlx5_{number}", rate="200 Gb/sec (2X NDR)")
    assert result_of(node.examine(), "rdma-ports").severity == MINOR


@pytest.mark.parametrize(("profile", "enroot", "status", "severity"), [
    (True, True, NOT_RUN, ""), (False, True, FAIL, ADMINISTRATOR), (False, False, FAIL, MINOR),
])  # fmt: skip
def test_apparmor_permits_it_to_programs(
    profile: bool, enroot: bool, status: str, severity: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = node.host()
    monkeypatch.setattr(type(host), "is_real", True)
    monkeypatch.setattr(user_namespaces, "try_mount", lambda: (2, 13))
    node.write("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1")
    if profile:
        node.write("etc/apparmor.d/enroot", "")
    if not enroot:
        (node.bin / "enroot").unlink()
    (result,) = user_namespaces.check(host, Need())
    assert (result.status, result.severity) == (status, severity)


@pytest.mark.parametrize(("state", "words"), [
    ("IDLE+DRAIN+REBOOT_REQUESTED", "cancel_reboot n1"), ("DOWN+REBOOT_ISSUED", "cancel_reboot n1"),
    ("IDLE+DRAIN+MAINTENANCE", "scontrol show reservation"),
])  # fmt: skip
def test_a_node_that_waits_for_its_reboot_is_not_to_be_resumed(state: str, words: str, node: Node) -> None:
    node.program("scontrol", f"echo 'NodeName=n1 State={state} CfgTRES=cpu=1 Reason=Reboot ASAP [root@now]'")
    result = result_of(node.examine(Need()), "slurm-node")
    assert (result.severity, words in result.fix, "RESUME" in result.fix) == (MINOR, True, False)


def test_a_planned_node_is_a_healthy_one(node: Node) -> None:
    node.program("scontrol", "echo 'NodeName=n1 State=IDLE+PLANNED CfgTRES=cpu=1'")
    assert "no jobs" not in result_of(node.examine(Need()), "slurm-node").detail


@pytest.mark.parametrize(("states", "severity"), [(("maint", "reboot^"), MINOR), (("maint", "drained"), ADMINISTRATOR)])
def test_a_login_node_in_a_maintenance_has_nothing_to_repair(
    states: tuple[str, ...], severity: str, node: Node
) -> None:
    (node.root / "proc/77/comm").unlink()
    rows = "".join(f"n{number + 5}|gpu*|{state}|gpu:8|Reboot ASAP\\n" for number, state in enumerate(states))
    node.program("sinfo", f'printf "{rows}"')
    result = result_of(node.examine(Need()), "slurm-nodes")
    assert (result.status, result.severity) == (FAIL, severity)


@pytest.mark.parametrize(("state", "severity"), [("N/A", MINOR), ("Completed", HARDWARE)])
def test_a_virtual_machine_without_a_partition_of_nvlink(
    state: str, severity: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        node.change_smi("State  .*", f"State : {state}", gpu=number)
    pairs = SimpleNamespace(nvlinks=lambda: {("GPU0", "GPU1"): 0})
    monkeypatch.setattr(nvlink, "topology", lambda host: (pairs, ""))
    assert result_of(node.examine(), "nvlink").severity == severity


@pytest.mark.parametrize(("name", "severity"), [("NVIDIA H800", HARDWARE), ("Tesla V100-SXM2-32GB", "")])
def test_one_weak_pair_of_a_full_mesh_is_a_fault(
    name: str, severity: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        node.change_smi("State  .*", "State : N/A", gpu=number)
    links = {(f"GPU{one}", f"GPU{two}"): 8 for one in range(4) for two in range(one + 1, 4)} | {("GPU0", "GPU1"): 6}
    monkeypatch.setattr(nvlink, "topology", lambda host: (SimpleNamespace(nvlinks=lambda: links), ""))
    monkeypatch.setattr(nvlink, "models", lambda host: [name] * 4)
    assert result_of(node.examine(), "nvlink").severity == severity


def test_one_moment_of_a_slow_clock_drains_no_node(node: Node) -> None:
    node.change_smi("HW Slowdown +: Not Active", "HW Slowdown : Active", gpu=1)
    result = result_of(node.examine(), "gpu-pcie")
    assert (result.severity, "ipmitool" in result.fix) == (MINOR, True)
