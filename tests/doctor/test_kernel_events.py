"""Events of GPUs and switches in the kernel's log: which drain a node, and which are over."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from envbuild.doctor.model import ADMINISTRATOR, FAIL, HARDWARE, MINOR, NOT_RUN, PASS
from tests.support.node_files import Node, result_of

pytestmark = pytest.mark.unit


def test_an_unreadable_kernel_log_is_not_run_and_names_who_may_read_it(node: Node) -> None:
    (node.root / "dev/kmsg").unlink()
    (node.root / "dev/kmsg").mkdir()
    result = result_of(node.examine(), "xid")
    assert (result.status, "adm" in result.fix) == (NOT_RUN, True)


GPU = "NVRM: Xid (PCI:0000:1b:00)"
HANG = f"6,1,100000000,-;{GPU}: 119, pid=1, timeout\n"
ADVICE = f"6,2,200000000,-;{GPU}: 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)\n"
DONE = f"6,3,300000000,-;{GPU}: 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)\n"
NEW = f"6,1,1,-;{GPU}: 999, a new one\n"


@pytest.mark.parametrize(("log", "status", "words"), [
    (HANG, FAIL, "XID 119 of 0000:1b:00, 15 minutes ago: timeout"),
    (HANG + ADVICE, FAIL, "XID 119 of 0000:1b:00, XID 154"),
    (HANG + ADVICE + DONE, PASS, "no GPU of these needs a recovery now"),
    (DONE, PASS, "XID 154"),
    (DONE + HANG, FAIL, "XID 119"),
    (NEW, FAIL, "XID 999 of 0000:1b:00, 16 minutes ago: a new one"),
])  # fmt: skip
def test_what_was_repaired_is_no_fault_while_its_line_remains(log: str, status: str, words: str, node: Node) -> None:
    node.write("dev/kmsg", log)
    node.write("proc/uptime", "1000.5 2000.0")
    result = result_of(node.examine(), "xid")
    assert result.status == status and words in result.detail
    assert "999" not in words or result.severity == MINOR


def test_an_event_of_a_switch_that_is_not_fatal_drains_no_node(node: Node) -> None:
    node.write("dev/kmsg", "6,1,1,-;nvidia-nvswitch0: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 32 egress error")
    assert result_of(node.examine(), "xid").severity == MINOR
    node.write("dev/kmsg", "6,1,1,-;nvidia-nvswitch0: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 32 LTSSM Fault Up")
    assert result_of(node.examine(), "xid").severity == HARDWARE


@pytest.mark.parametrize("number", [46, 62, 109, 110, 136, 143, 155, 156, 158])
def test_xids_that_need_a_reset_are_the_administrators(number: int, node: Node) -> None:
    node.write("dev/kmsg", f"6,1,1,-;{GPU}: {number}, text")
    assert result_of(node.examine(), "xid").severity == ADMINISTRATOR


def test_a_link_that_the_driver_has_recovered_is_no_fault(node: Node) -> None:
    text = (Path(__file__).parent / "texts/nvidia-smi-q.h100.txt").read_text()
    bus = re.search(r"(?m)^GPU 0000([0-9A-F:]+)\.0", text)
    assert bus
    node.write("dev/kmsg", f"6,1,1,-;NVRM: Xid (PCI:{bus[1].lower()}): 74, pid=1, NVLink: fatal error detected")
    assert result_of(node.examine(), "xid").severity == HARDWARE
    for advice, status in (("None", PASS), ("Reboot", FAIL)):
        changed = re.sub(r"(?m)^( +)(Persistence Mode +:.*)$", rf"\1\2\n\1GPU Recovery Action : {advice}", text)
        (node.root.parent / "smi.txt").write_text(changed)
        node.program("nvidia-smi", f"cat {node.root.parent}/smi.txt")
        found = node.examine()
        assert result_of(found, "xid").status == status
        if status == FAIL:
            assert result_of(found, "gpu-settings").fix == "drain the node, then reboot"


SWITCH = "6,1,1,-;nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, "
RECORDS = f"""{SWITCH}{{}}, Link 44 Minion Link DLREQ interrupt
{SWITCH}Severity 0 Engine instance 44 Sub-engine instance 00
{SWITCH}Data {{{{0x0000002b, 0x0000002b, 0x00000000}}}}
"""


@pytest.mark.parametrize(("word", "severity"), [("Non-fatal", MINOR), ("Fatal", HARDWARE)])
def test_the_records_of_an_event_of_a_switch_are_one_event(word: str, severity: str, node: Node) -> None:
    """They come back with a reboot: the node never returned."""
    node.write("dev/kmsg", RECORDS.format(word))
    result = result_of(node.examine(), "xid")
    assert (result.severity, result.detail.split(",")[0]) == (severity, f"SXID 22013 of 0000:04:00.0: {word}")


@pytest.mark.parametrize(("text", "severity"), [
    ("RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)", MINOR),
    ("pid=876767, name=ray::WorkerDict, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)", MINOR),
    ("RLW_SRC_TRACK Fatal XC0 i0 Link -1 (0x00000007 0x00000001)", HARDWARE),
    ("pid=1, name=Nonfatal X i0 Link, RLW_SRC_TRACK Fatal XC0 i0 Link 00 (0x00000007 0x00000001)", HARDWARE),
    ("a new form", HARDWARE),
])  # fmt: skip
def test_an_event_of_nvlink_5_drains_where_it_is_fatal(text: str, severity: str, node: Node) -> None:
    node.write("dev/kmsg", f"6,1,1,-;{GPU}: 145, {text}")
    assert result_of(node.examine(), "xid").severity == severity


LOADED = "6,9,400000000,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.127.05\n"
TIMEOUT = f"6,1,100000000,-;{GPU}: 119, pid=7, name=python3, Timeout waiting for RPC from GSP0!\n"


@pytest.mark.parametrize(("log", "status"), [
    (TIMEOUT, FAIL), (TIMEOUT + LOADED, PASS), (LOADED + TIMEOUT, FAIL),
    (TIMEOUT + "12,9,400000000,-;envbuild-doctor: reset 0000:1b:00.0\n", PASS),
    (TIMEOUT + "12,9,400000000,-;envbuild-doctor: reset 0000:43:00.0\n", FAIL),
    (TIMEOUT + "4,9,400000000,-;EXT4-fs: bad option envbuild-doctor: reset 0000:1b:00.0\n", FAIL),  # of a user's mount
])  # fmt: skip
def test_a_reset_ends_the_failure_where_the_driver_states_no_recovery(log: str, status: str, node: Node) -> None:
    """Before driver 560 nothing of nvidia-smi changes with a reset, and the line remains until the next boot."""
    node.write("dev/kmsg", log)
    node.write("proc/uptime", "864000.0 1.0")
    result = result_of(node.examine(), "xid")
    assert result.status == status
    assert status == PASS or "echo 'envbuild-doctor: reset 0000:1b:00.0' > /dev/kmsg" in result.fix
    assert status == PASS or "9 days ago: Timeout waiting for RPC from GSP0!" in result.detail


def test_counters_of_a_gpu_that_started_again_end_an_error_of_memory(node: Node) -> None:
    node.write("dev/kmsg", f"6,1,100000000,-;{GPU}: 48, pid=1, uncorrectable\n")
    assert result_of(node.examine(), "xid").status == PASS
    node.change_smi(r"(Volatile\n +SRAM Uncorrectable Parity +: )0", r"\g<1>2")
    found = node.examine()
    assert result_of(found, "xid").severity == result_of(found, "gpu-memory-errors").severity == ADMINISTRATOR


def test_a_power_cable_is_hardware(node: Node) -> None:
    node.write("dev/kmsg", f"6,1,1,-;{GPU}: 54, Auxiliary power is not connected")
    result = result_of(node.examine(), "xid")
    assert (result.severity, "gpu-reset" in result.fix, "power cables" in result.fix) == (HARDWARE, False, True)


def test_the_time_that_the_log_covers_is_stated(node: Node) -> None:
    node.write("proc/uptime", "864000.0 1.0")
    for start, words in ((100, "since the boot"), (856800 * 10**6, "for the last 2 hours of 10 days")):
        node.write("dev/kmsg", f"6,1,{start},-;a line")
        for check in ("xid", "kernel-faults"):
            assert words in result_of(node.examine(), check).detail
    node.write("dev/kmsg", "")
    for check in ("xid", "kernel-faults"):
        result = result_of(node.examine(), check)
        assert (result.status, "it is empty" in result.detail) == (NOT_RUN, True)
