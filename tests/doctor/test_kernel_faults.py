"""Hardware that the kernel's log names, and settings of GPUs that stop or slow each job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from envbuild.doctor.job_log import read_log
from envbuild.doctor.log_results import log_results
from envbuild.doctor.model import ADMINISTRATOR, FAIL, HARDWARE, MINOR, NOT_RUN, PASS
from tests.support.node_files import NEED, Node, result_of

pytestmark = pytest.mark.unit
HEALTH = "3,1,5,-;mlx5_core 0000:4d:00.0: poll_health:1: Fatal error 1 detected: device's health compromised\n"


@pytest.mark.parametrize(("line", "severity"), [
    (HEALTH, HARDWARE),
    (HEALTH + "6,2,9,-;mlx5_core 0000:4d:00.0: health recovery succeeded\n", MINOR),
    (HEALTH + "6,2,9,-;mlx5_core 0000:5d:00.0: health recovery succeeded\n", HARDWARE),
    ("3,1,5,-;NVRM: GPU 0000:df:00.0: GPU has fallen off the bus.", HARDWARE),
    ("3,1,5,-;NVRM: GPU 0000:df:00.0: RmInitAdapter failed! (0x62:0x40:2393)", HARDWARE),
    ("3,1,5,-;NVRM: GPU 0000:43:00.0: RmInitAdapter failed! (0x62:0x40:2393)", MINOR),  # it answers now
    ("3,1,5,-;mlx5_core 0000:1a:00.0: poll_health:1: device's health compromised", MINOR),  # its port is active now
    ("3,1,5,-;pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:43:00.0", HARDWARE),
    ("3,1,5,-;pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:02:00.0", MINOR),  # of another one
    ("3,1,5,-;mce: [Hardware Error]: Machine check events logged", MINOR),
    ("3,1,5,-;EDAC MC0: 1 UE memory read error on CPU_SrcID#0", MINOR),
    ("3,1,5,-;nvme nvme0: controller is down; will reset: CSTS=0xffffffff", MINOR),
    ("3,1,5,-;EXT4-fs (sda1): Remounting filesystem read-only", MINOR),
    ("3,1,5,-;watchdog: BUG: soft lockup - CPU#3 stuck for 22s!", MINOR),
    ("3,1,5,-;EXT4-fs: bad option NVRM: GPU 0000:df:00.0: GPU has fallen off the bus.", ""),  # of a user's mount
    ("6,1,5,-;EDAC MC0: Giving out device to module", ""),
])  # fmt: skip
def test_the_kernel_names_hardware(line: str, severity: str, node: Node) -> None:
    node.write("sys/bus/pci/devices/0000:1a:00.0/infiniband/mlx5_0/node_type", "1: CA")
    node.write("dev/kmsg", line)
    result = result_of(node.examine(), "kernel-faults")
    assert "AER" not in line or f"grep -F '{line[-12:]}'" in result.fix
    assert (result.status, result.severity) == (FAIL if severity else PASS, severity)


def test_a_log_that_may_not_be_read_is_not_run(node: Node) -> None:
    (node.root / "dev/kmsg").unlink()
    assert result_of(node.examine(), "kernel-faults").status == NOT_RUN


@pytest.mark.parametrize(("line", "severity"), [
    ("    Compute Mode : Prohibited", ADMINISTRATOR), ("    Compute Mode : Exclusive_Process", MINOR),
    ("    Compute Mode : Default", ""), ("    GPU Recovery Action : Drain P2P", ADMINISTRATOR),
    ("    GPU Power Readings\n        Current Power Limit : 300.00 W\n        Default Power Limit : 700.00 W", MINOR),
    ("    GPU Power Readings\n        Current Power Limit : 700.00 W\n        Default Power Limit : 700.00 W", ""),
])  # fmt: skip
def test_settings_that_stop_or_slow_a_job(line: str, severity: str, node: Node) -> None:
    node.change_smi("^    Processes", f"{line}\n    Processes", gpu=1)
    result = result_of(node.examine(), "gpu-settings")
    assert result.severity == severity
    assert "gpu-reset" not in result.fix


def test_the_driver_advises_to_end_traffic_between_gpus(node: Node) -> None:
    words = "GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)"
    node.write("dev/kmsg", f"NVRM: Xid (PCI:0000:1b:00): 154, pid=1, {words}\n")
    result = result_of(node.examine(), "xid")
    assert (result.severity, "reset" in result.fix) == (ADMINISTRATOR, False)


def test_a_link_that_comes_and_goes_is_minor(node: Node) -> None:
    path = "sys/class/infiniband/mlx5_1/ports/1/counters/link_downed"
    node.write("proc/uptime", "864000.0 1.0")
    node.write(path, "12")
    assert result_of(node.examine(), "link-errors").status == PASS
    node.write(path, "137")
    assert result_of(node.examine(), "link-errors").severity == MINOR


def test_names_of_another_site_do_not_hide_a_port(node: Node) -> None:
    for name in ("mlx5_8", "mlx5_9"):
        node.write_port(name, board="MT_0000000838")
    node.write_port("mlx5_1", state="1: DOWN", physical="2: Polling")
    result = result_of(node.examine(replace(NEED, names=("mlx5_ib0", "mlx5_ib1"))), "rdma-ports")
    assert (result.status, result.severity) == (FAIL, HARDWARE)


def test_the_port_that_needs_its_cable_is_named_first(node: Node) -> None:
    place = "sys/class/infiniband/mlx5_0/ports/2"
    for name, text in (("state", "1: DOWN"), ("phys_state", "3: Disabled"), ("link_layer", "InfiniBand")):
        node.write(f"{place}/{name}", text)
    node.write_port("mlx5_1", state="1: DOWN", physical="2: Polling")
    result = result_of(node.examine(), "rdma-ports")
    assert result.detail.startswith("not active: mlx5_1:1 down polling")
    assert "mlxlink -d mlx5_1" in result.fix and "ibportstate" not in result.fix
    node.write_port("mlx5_0", state="2: INIT", physical="5: LinkUp")
    result = result_of(node.examine(), "rdma-ports")
    assert (result.severity, "mlxlink -d mlx5_1" in result.fix) == (HARDWARE, True)


def test_the_log_of_a_job_names_the_node_and_each_gpu() -> None:
    start = "Nov 20 10:00:00 dgx4 kernel: NVRM: Xid (PCI:0000:9d:00): "
    lines = [f"{start}119, pid=1, Timeout", f"{start.replace('9d', 'df')}79, pid=1, GPU has fallen off the bus."]
    (result,) = [one for one in log_results(read_log(lines), NEED) if one.check == "xid"]
    assert result.detail.startswith(
        "XID 79 of 0000:df:00 of dgx4: GPU has fallen off the bus; also XID 119 of 0000:9d:00 of dgx4"
    )


def test_a_port_above_a_gpu_is_needed(node: Node) -> None:
    slot = node.root / "sys/bus/pci/devices/0000:43:00.0"
    real = node.root / "sys/devices/pci0000:00/0000:00:1c.0/0000:43:00.0"
    real.parent.mkdir(parents=True)
    slot.rename(real)
    slot.symlink_to("../../../devices/pci0000:00/0000:00:1c.0/0000:43:00.0")
    for port, severity in (("0000:00:1c.0", HARDWARE), ("0000:00:1d.0", MINOR)):
        node.write("dev/kmsg", f"3,1,5,-;pcieport {port}: AER: Multiple Uncorrectable (Fatal) error message received")
        assert result_of(node.examine(), "kernel-faults").severity == severity


def test_errors_of_memory_are_minor_where_the_driver_needs_no_recovery(node: Node) -> None:
    node.change_smi(r"(Volatile\n +SRAM Uncorrectable Parity +: )0", r"\g<1>2")
    assert result_of(node.examine(), "gpu-memory-errors").severity == ADMINISTRATOR
    node.change_smi(r"^( +)(Persistence Mode +:.*)$", r"\1\2\n\1GPU Recovery Action : None")
    assert result_of(node.examine(), "gpu-memory-errors").severity == MINOR
