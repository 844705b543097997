"""Parsers: values of every form, and a text that is truncated at any line is never taken for a whole one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.doctor.tools.docker import parse_docker
from envbuild.doctor.tools.fi_info import parse_endpoints, rdm_domains
from envbuild.doctor.tools.ibstat import parse_ibstat
from envbuild.doctor.tools.ibv_devinfo import parse_devinfo
from envbuild.doctor.tools.kernel_log import parse_kernel_log
from envbuild.doctor.tools.lspci import parse_lspci
from envbuild.doctor.tools.neuron_ls import parse_neuron
from envbuild.doctor.tools.nvidia_smi import parse_smi
from envbuild.doctor.tools.nvidia_topo import parse_topology
from envbuild.doctor.tools.scontrol import gpus_of, parse_node, states
from envbuild.doctor.tools.short_answers import parse_mpi_list, parse_ofed, parse_srun_help, parse_version
from envbuild.doctor.tools.sinfo import parse_sinfo
from tests.support.truncation import check_truncation

pytestmark = pytest.mark.unit

TEXTS = Path(__file__).parent / "texts"


def text(name: str) -> str:
    return (TEXTS / name).read_text()


def node_is_complete(found: str) -> bool:
    node = parse_node(found)
    return "State" in node and gpus_of(node) is not None


# file → whether a text has everything; of formats without an announced end: the number that the whole text has
WHOLE: dict[str, Callable[[str], bool]] = {
    "nvidia-smi-q.h100.txt": lambda found: parse_smi(found).complete,
    "nvidia-smi-q.old.txt": lambda found: parse_smi(found).complete,
    "topo.tabs.txt": lambda found: parse_topology(found).complete,
    "topo.blanks.txt": lambda found: parse_topology(found).complete,
    "ibstat.txt": lambda found: parse_ibstat(found)[1] and len(parse_ibstat(found)[0]) == 3,
    "ibv_devinfo.txt": lambda found: parse_devinfo(found)[1] and len(parse_devinfo(found)[0]) == 3,
    "fi_info.txt": lambda found: parse_endpoints(found)[1] and len(parse_endpoints(found)[0]) == 4,
    "lspci.txt": lambda found: len(parse_lspci(found)) == 5,
    "sinfo.txt": lambda found: len(parse_sinfo(found)) == 5,
    "srun-help.txt": lambda found: parse_srun_help(found)[1],
    "scontrol.line.txt": node_is_complete,
    "scontrol.lines.txt": node_is_complete,
    "neuron-ls.json": lambda found: parse_neuron(found) is not None,
    "docker-version.json": lambda found: parse_docker(found) is not None,
    "kernel.txt": lambda found: len(parse_kernel_log(found)) == 5,
}
END = {  # the line that completes a text; what follows it announces nothing
    "topo.tabs.txt": "Legend:", "topo.blanks.txt": "Legend:", "scontrol.lines.txt": "CfgTRES", "kernel.txt": "SXid",
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_a_text_truncated_at_any_line_is_incomplete(name: str) -> None:
    check_truncation(text(name), WHOLE[name], END.get(name, ""))


def test_every_text_is_tested() -> None:
    assert {path.name for path in TEXTS.iterdir()} - {"README.md"} == set(WHOLE)


def test_values_of_nvidia_smi_are_found_by_their_section() -> None:
    report = parse_smi(text("nvidia-smi-q.h100.txt"))
    gpu = report.gpus[1]
    assert (report.driver, report.cuda, report.attached, len(report.gpus)) == ("580.95.05", "13.0", 2, 2)
    assert (gpu.bus, gpu.value("MIG Mode/Current"), gpu.value("ECC Mode/Current")) == (
        "00000000:43:00.0", "Disabled", "Enabled",
    )  # fmt: skip
    assert gpu.value("PCI/GPU Link Info/Link Width/Current") == "16x"
    assert gpu.value("ECC Errors/Volatile/DRAM Uncorrectable") == "0"
    assert gpu.value("Clocks Event Reasons/HW Slowdown/HW Thermal Slowdown") == "Not Active"
    assert gpu.value("Nothing", "Fabric/State") == "Completed"


def test_lines_of_a_preloaded_library_and_unknown_values_are_left_out() -> None:
    report = parse_smi(text("nvidia-smi-q.old.txt"))
    assert (report.driver, report.cuda, report.gpus[0].value("MIG Mode/Current")) == ("510.68.02", "11.6", "")


def test_links_are_read_from_tabs_and_from_blanks() -> None:
    tabs, blanks = parse_topology(text("topo.tabs.txt")), parse_topology(text("topo.blanks.txt"))
    assert tabs.nvlinks() == {("GPU0", "GPU1"): 18}
    assert tabs.links["GPU1", "NIC0"] == "SYS"
    assert blanks.nvlinks() == {("GPU0", "GPU1"): 8, ("GPU0", "GPU2"): 4, ("GPU1", "GPU2"): 8}
    assert blanks.devices == ("GPU0", "GPU1", "GPU2", "mlx5_0")


def test_the_underline_of_a_terminal_is_not_part_of_a_name() -> None:
    lines = text("topo.tabs.txt").splitlines()
    styled = "\n".join([f"\x1b[4m{lines[0]}\x1b[0m", *lines[1:]])
    assert parse_topology(styled).nvlinks() == {("GPU0", "GPU1"): 18}


def test_ports_have_state_rate_and_layer() -> None:
    ports, complete = parse_ibstat(text("ibstat.txt"))
    assert complete
    assert [(port.name, port.active, port.rate, port.layer) for port in ports] == [
        ("mlx5_0:1", True, 400, "InfiniBand"),
        ("mlx5_1:1", False, 10, "InfiniBand"),
        ("mlx5_2:1", True, 100, "Ethernet"),
    ]


def test_a_listing_that_ends_with_a_panic_is_incomplete_and_its_ports_are_read() -> None:
    ports, complete = parse_ibstat(text("ibstat.txt") + "ibpanic: [1] main: stat of IB device 'mlx5_8' failed\n")
    assert (len(ports), complete) == (3, False)


def test_devices_of_verbs_are_read_with_tabs_and_blanks() -> None:
    devices, _ = parse_devinfo(text("ibv_devinfo.txt"))
    assert [(one.name, one.vendor, one.active) for one in devices] == [
        ("mlx5_0", "0x02c9", 1), ("mlx5_1", "0x02c9", 1), ("rdmap16s27", "0x1d0f", 1),
    ]  # fmt: skip


def test_a_device_with_two_endpoints_counts_once() -> None:
    endpoints, _ = parse_endpoints(text("fi_info.txt"))
    assert rdm_domains(endpoints) == {"rdmap16s27", "rdmap32s27"}


def test_pci_devices_have_the_numbers_of_their_class_and_vendor() -> None:
    devices = parse_lspci(text("lspci.txt"))
    assert [(one.kind, one.vendor, one.device) for one in devices[1:4]] == [
        ("0302", "10de", "2330"), ("0302", "10de", "2330"), ("0680", "10de", "22a3"),
    ]  # fmt: skip


def test_a_typed_and_an_untyped_gres_are_the_same_devices() -> None:
    node = parse_node(text("scontrol.line.txt"))
    assert (gpus_of(node), states(node), node["OS"]) == (
        2,
        ["IDLE"],
        "Linux 6.8.0 #22-Ubuntu SMP Mon May 25 15:54:34 UTC 2026",
    )
    assert gpus_of({"CfgTRES": "cpu=1,gres/gpu:h100=8"}) == 8
    assert gpus_of({"CfgTRES": "cpu=1", "Gres": "gpu_mem:16280,gpu:h100:4(S:0-1),gpu:2"}) == 6


def test_the_first_node_of_several_lines_is_read_with_its_reason() -> None:
    node = parse_node(text("scontrol.lines.txt"))
    assert (node["NodeName"], states(node)) == ("n2", ["MIXED", "DRAIN"])
    assert node["Reason"] == "cable of port 3 [root@2026-11-24T10:00:00]"
    assert gpus_of(node) == 0


def test_a_node_that_does_not_respond_is_not_usable() -> None:
    assert states({"State": "IDLE*"}) == ["IDLE", "NOT_RESPONDING"]
    assert states({"State": "IDLE+NOT_RESPONDING"}) == ["IDLE", "NOT_RESPONDING"]
    rows = parse_sinfo(text("sinfo.txt"))
    assert [(row.node, row.usable) for row in rows] == [
        ("n1", True), ("n1", True), ("n2", False), ("n3", False), ("n4", True),
    ]  # fmt: skip
    assert rows[2].reason == "cable|port 3"


def test_xids_are_classed_by_what_they_need() -> None:
    events = parse_kernel_log(text("kernel.txt"))
    assert [(event.number, event.action) for event in events] == [
        (32, "unknown"), (79, "reboot"), (94, "memory"), (48, "reset"), (11001, "link"),
    ]  # fmt: skip
    assert events[2].bus == "0000:01:00"


@pytest.mark.parametrize(
    "line",
    [
        "4,1,2,-;tmpfs: Unknown parameter 'NVRM: Xid (PCI:0000:3b:00.0): 79 GPU has fallen off the bus'",
        "4,1,2,-;tmpfs: Unknown parameter '\f6,1,1,-;NVRM: Xid (PCI:0000:3b:00.0): 79'",
        "[   12.345678] tmpfs: Unknown parameter 'kernel: NVRM: Xid (PCI:0000:3b:00.0): 79'",
        "Jan 15 03:00:00 n1 kernel: process 'nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 11001' started",
    ],
)
def test_a_text_of_a_user_in_the_kernels_log_is_not_an_event(line: str) -> None:
    """`unshare -Urm mount -t tmpfs -o TEXT none /mnt` fails, and the kernel logs TEXT: the node was drained."""
    assert parse_kernel_log(line) == []


def test_an_event_is_recognised_as_each_program_prints_it() -> None:
    event = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1"
    before = (
        "", "6,1,2,-;", "[ 1399.140323] ", "[Thu Jan 15 03:00:00 2026] ", "Jan 15 03:00:00 n1 kernel: ",
        "2026-01-15T03:00:00,000000+00:00 ", "2026-01-15T03:00:00+0000 n1 kernel: ",
        "0: Jan 15 03:00:00 n1 kernel: ", "kern  :err   : 2026-01-15T03:00:00,000000+00:00 ",
    )  # fmt: skip
    assert [len(parse_kernel_log(words + event)) for words in before] == [1] * len(before)


@pytest.mark.parametrize(
    ("printed", "version"),
    [("NVIDIA Container Toolkit CLI version 1.17.8\ncommit: f202b80", "1.17.8"), ("3.5.0\n", "3.5.0"), ("", "")],
)
def test_versions_are_found_in_a_sentence(printed: str, version: str) -> None:
    assert parse_version(printed) == version


def test_versions_of_ofed_have_a_release() -> None:
    assert parse_ofed("MLNX_OFED_LINUX-5.8-1.1.2.1:\n") == "5.8-1.1.2.1"
    assert parse_ofed("OFED-internal-24.10-0.7.0:\n") == "24.10-0.7.0"
    assert parse_ofed("command not found") == ""


def test_plugins_of_mpi_are_listed_with_their_versions() -> None:
    printed = "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\nspecific pmix plugin versions available: pmix_v4\n"
    assert parse_mpi_list(printed) == ["none", "pmi2", "pmix", "pmix_v4"]
    assert parse_mpi_list("") == []


@pytest.mark.parametrize("printed", ["null", "[1]", '{"Client": 3}', "not json"])
def test_json_of_another_form_is_refused(printed: str) -> None:
    assert not parse_neuron(printed)
    found = parse_docker(printed)
    assert found is None or not found.engine
