"""Checks on nodes made of files: a healthy one, and one fault at a time."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.doctor.checks import GROUPS, check_names, kernel, user_namespaces
from envbuild.doctor.facts.gpus import module_gpus
from envbuild.doctor.facts.place import find_place, pid_of, slurm_name
from envbuild.doctor.host import Host
from envbuild.doctor.model import ADMINISTRATOR, FAIL, HARDWARE, MINOR, NOT_RUN, PASS, SEVERITIES, USER, Need
from tests.support.node_files import NEED, Node, result_of

pytestmark = pytest.mark.unit
# read by system calls, which a copy of files does not answer
OF_THE_SYSTEM = {"clock", "cpu-affinity", "shared-memory", "user-namespaces", "image-store"}


def test_a_healthy_node_has_no_failure(node: Node) -> None:
    found = node.examine()
    assert [(one.check, one.detail) for one in found.failures] == []
    assert {one.check for one in found.results if one.status == PASS} >= {
        "cpu", "kernel", "memlock", "nvidia-driver", "gpu-count", "gpu-devices", "gpu-memory-errors", "gpu-settings",
        "gpu-pcie", "gpu-versions", "nvlink", "fabric-manager", "gpudirect", "rdma-ports", "rdma-firmware",
        "link-errors", "verbs-devices", "enroot", "pyxis", "slurm-node", "slurm-mpi", "xid",
    }  # fmt: skip
    assert found.facts["place"] == "compute node"
    assert [gpu["max_clocks"]["sm"] for gpu in found.facts["nvidia"]["gpus"]] == ["1980 MHz", "1980 MHz"]


def test_a_node_without_any_program_or_device_passes_nothing_about_devices(tmp_path: Path) -> None:
    found = Node(tmp_path).examine(Need())
    of_devices = [one for one in found.results if one.group in ("GPU", "network", "Neuron")]
    assert {one.status for one in of_devices} == {NOT_RUN}
    assert all(one.detail for one in found.results)


def test_a_program_of_slurm_that_fails_is_not_run_with_its_first_line(node: Node) -> None:
    node.program("srun", "echo 'srun: fatal: no controller' >&2; exit 1")
    found = node.examine()
    assert {result_of(found, check).detail for check in ("pyxis", "slurm-mpi")} == {
        "srun --help failed with exit code 1: srun: fatal: no controller",
        "srun --mpi=list failed with exit code 1: srun: fatal: no controller",
    }


def test_what_several_checks_need_is_read_once(tmp_path: Path) -> None:
    node = Node(tmp_path)
    host = node.host()
    first = find_place(host)
    node.write("proc/77/comm", "other")
    assert find_place(host) == first != find_place(node.host())


def test_a_login_node_counts_the_nodes_of_slurm(node: Node) -> None:
    (node.root / "proc/77/comm").unlink()
    node.write("proc/sys/kernel/hostname", "login1")
    node.prints("sinfo", "sinfo.txt")
    result = result_of(node.examine(), "slurm-nodes")
    assert (result.status, "not responding" in result.detail) == (PASS, True)
    node.program("sinfo", "echo 'n1|a|down|gpu:8|cable of port 3'")
    result = result_of(node.examine(), "slurm-nodes")
    assert (result.status, "cable of port 3" in result.detail) == (FAIL, True)
    assert not result.drains
    node.program("sinfo", "echo 'Unable to contact slurm controller' >&2; exit 1")
    result = result_of(node.examine(), "slurm-nodes")
    assert (result.status, result.drains) == (FAIL, False)  # of the controller: this node is as good as before
    node.program(
        "sinfo",
        "echo 'sinfo: error: x' >&2; echo 'sinfo: fatal: Could not establish a configuration source' >&2; exit 1",
    )
    result = result_of(node.examine(), "slurm-nodes")
    assert result.detail.endswith("sinfo: fatal: Could not establish a configuration source")
    assert result.fix.startswith("export SLURM_CONF=")


def test_munge_of_a_login_node_is_not_the_controllers_fault(node: Node) -> None:
    (node.root / "proc/77/comm").unlink()
    text = "sinfo: error: Munge encode failed: Failed to access socket; sinfo: Protocol authentication error"
    node.program("sinfo", f"echo '{text}' >&2; exit 1")
    assert result_of(node.examine(), "slurm-nodes").fix.startswith("on this machine: systemctl restart munge")


def test_a_missing_gpu_of_a_node_is_hardware_and_of_a_job_its_request(node: Node) -> None:
    two = replace(NEED, gpus=len(module_gpus(node.host())) + 1)
    result = result_of(node.examine(two), "gpu-count")
    assert (result.severity, "power" in result.fix) == (HARDWARE, True)
    result = result_of(node.examine(two, SLURM_JOB_ID="7"), "gpu-count")
    assert (result.severity, "srun --gpus-per-node" in result.fix) == (USER, True)


def test_locked_memory_of_a_session_and_of_a_job(node: Node) -> None:
    """slurmd passes no limit: an administrator's shell on the node has its own."""
    node.write("proc/self/limits", "Max locked memory  65536  65536 bytes")
    result = result_of(node.examine(), "memlock")
    assert (result.status, result.detail) == (PASS, "slurmd passes no limit to jobs; this session has 65.5 kB")
    result = result_of(node.examine(SLURM_JOB_ID="7"), "memlock")
    assert (result.severity, result.fix.split(";")[0]) == (USER, "srun --propagate=NONE")


def test_a_machine_without_neuron_devices_needs_no_driver(node: Node) -> None:
    need = replace(NEED, nvidia=False, gpu="Trainium", source="trn1", gpus=16)
    result = result_of(node.examine(need), "neuron")
    assert (result.severity, result.fix) == (USER, "use a node of that target")
    for name, text in (("class", "0x088000"), ("vendor", "0x1d0f"), ("device", "0x7164")):
        node.write(f"sys/bus/pci/devices/0000:10:1c.0/{name}", text)
    assert result_of(node.examine(need), "neuron").detail == "the Neuron driver is not loaded"


@pytest.mark.parametrize("code", [0, 6])
def test_a_job_that_requested_no_gpu_is_no_fault_of_the_node(code: int, node: Node) -> None:
    """Slurm hides the GPUs that a job did not request."""
    node.program("nvidia-smi", f"echo 'No devices were found'; exit {code}")
    found = node.examine(SLURM_JOB_ID="7")
    assert "this job has no GPU" in result_of(found, "nvidia-driver").detail
    assert not [one for one in found.failures if "nvidia-smi" in one.detail]
    assert result_of(found, "gpu-versions").status == NOT_RUN
    assert result_of(node.examine(), "nvidia-driver").status == (FAIL if code else PASS)


def test_enroot_from_source_has_its_hooks_elsewhere(node: Node) -> None:
    node.program("enroot", 'ENROOT_SYSCONF_PATH="/usr/local/etc/enroot"; echo 3.5.0')
    result = result_of(node.examine(), "enroot")
    assert (result.status, "/usr/local/etc/enroot/hooks.d" in result.fix) == (FAIL, True)
    for name in ("98-nvidia.sh", "99-mellanox.sh"):
        node.write(f"usr/local/etc/enroot/hooks.d/{name}", "")
    assert result_of(node.examine(), "enroot").status == PASS


def test_reserved_ports_of_a_site_remain(node: Node) -> None:
    node.write("proc/sys/net/ipv4/ip_local_reserved_ports", "30000-32767,50000")
    result = result_of(node.examine(replace(NEED, nvidia=False, gpu="Trainium")), "neuron-ports")
    assert "=30000-32767,50000,48620;" in result.fix


def test_a_compute_node_whose_slurmd_has_stopped_is_no_login_node(node: Node) -> None:
    (node.root / "proc/77/comm").unlink()
    node.write("etc/systemd/system/multi-user.target.wants/slurmd.service", "")
    found = node.examine()
    result = next(one for one in found.results if one.check == "slurm-node")
    assert found.facts["place"] == "compute node"
    assert (result.status, result.severity, result.detail) == (FAIL, ADMINISTRATOR, "slurmd does not run")
    assert result.fix.startswith("as root: pgrep -x slurmd || slurmd -Dvv")
    node.write("run/systemd/system/x", "")
    result = next(one for one in node.examine().results if one.check == "slurm-node")
    assert "systemctl restart slurmd" in result.fix


def test_a_machine_that_slurm_has_as_a_node_needs_its_slurmd(node: Node) -> None:
    (node.root / "proc/77/comm").unlink()
    node.write("proc/sys/kernel/hostname", "n9")
    name = slurm_name(node.host())
    node.program("sinfo", f"echo 'n1|a|idle|gpu:8|none'; echo '{name}|a|down*|gpu:8|Not responding'")
    found = [one for one in node.examine().results if one.check == "slurm-nodes"]
    assert [one.status for one in found] == [FAIL, PASS]
    assert found[0].detail == f"slurmd does not run, and Slurm has this machine as a node: {name}, not responding"


@pytest.mark.parametrize(("adapters", "inside", "severity", "fix"), [
    (True, True, USER, "docker run --device=/dev/infiniband"),
    (False, True, ADMINISTRATOR, "on the host: grep -l 0x15b3"),
    (True, False, ADMINISTRATOR, "modprobe mlx5_ib"),
    (False, False, ADMINISTRATOR, "drain the node; switch its power off and on"),
])  # fmt: skip
def test_who_can_repair_missing_infiniband(
    adapters: bool, inside: bool, severity: str, fix: str, tmp_path: Path
) -> None:
    node = Node(tmp_path)
    if adapters:
        for name, text in (("class", "0x020700"), ("vendor", "0x15b3"), ("device", "0x1021")):
            node.write(f"sys/bus/pci/devices/0000:1a:00.0/{name}", text)
    if inside:
        (node.root / "proc/self/ns/user").unlink()
        node.link("proc/self/ns/user", "user:[4026532575]")
    result = result_of(node.examine(), "rdma-ports")
    assert (result.status, result.severity, result.fix.startswith(fix)) == (FAIL, severity, True)
    assert ("visible in this container" in result.detail) == inside
    fix = result_of(node.examine(SLURM_JOB_ID="7"), "rdma-ports").fix
    assert fix.startswith("export MELLANOX_VISIBLE_DEVICES=all") == (adapters and inside)


def test_a_users_process_with_the_name_of_slurmd_is_not_slurmd(node: Node) -> None:
    """Its limits drained the node."""
    node.write("proc/9/comm", "slurmd")
    node.write("proc/9/status", "Name:\tslurmd\nUid:\t1000\t1000\t1000\t1000\n")
    node.write("proc/9/limits", "Max locked memory  65536  65536 bytes")
    assert pid_of(node.host(), "slurmd") == 77
    assert result_of(node.examine(), "memlock").status == PASS


def test_huge_pages_that_are_all_in_use_fail_with_efa(node: Node) -> None:
    node.write("proc/meminfo", "HugePages_Total:    8\nHugePages_Free:     0\n")
    assert result_of(node.examine(), "huge-pages").status == NOT_RUN
    assert result_of(node.examine(replace(NEED, fabric="efa")), "huge-pages").severity == MINOR
    node.write("proc/meminfo", "HugePages_Total:    8\nHugePages_Free:     2\n")
    assert result_of(node.examine(replace(NEED, fabric="efa")), "huge-pages").status == PASS


def test_efa_is_counted_by_libfabric(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for number, slot in enumerate(("0000:16:1b.0", "0000:32:1b.0")):
        for name, value in (("class", "0x020000"), ("vendor", "0x1d0f"), ("device", "0xefa1")):
            node.write(f"sys/bus/pci/devices/{slot}/{name}", value)
        node.write_port(f"rdmap{number}", layer="Unspecified")
        node.link(f"sys/class/infiniband/rdmap{number}/device/driver", "../drivers/efa")
    need = Need(source="efa", fabric="efa", efa=2)
    assert result_of(node.examine(need), "efa").status == NOT_RUN
    node.prints("fi_info", "fi_info.txt")
    assert result_of(node.examine(need), "efa").status == PASS
    assert result_of(node.examine(replace(need, efa=4)), "efa").status == FAIL
    node.program("fi_info", "echo 'fi_getinfo: -61 (No data available)' >&2; exit 1")
    assert result_of(node.examine(need), "efa").status == FAIL


def test_neuron_devices_are_compared_with_the_target(tmp_path: Path) -> None:
    node = Node(tmp_path)
    need = Need(source="trn1", gpu="Trainium1", gpus=2, fabric="efa")
    assert result_of(node.examine(need), "neuron").status == FAIL
    node.write("sys/module/neuron/version", "2.21")
    for number in range(2):
        node.write(f"sys/devices/virtual/neuron_device/neuron{number}/core_count", "2")
        node.write(f"dev/neuron{number}", "")
    node.prints("neuron-ls", "neuron-ls.json")
    node.write("proc/sys/net/ipv4/ip_local_reserved_ports", "1000,48600-48700")
    found = node.examine(need)
    assert [result_of(found, check).status for check in ("neuron", "neuron-ports")] == [PASS, PASS]
    assert "4 cores" in result_of(found, "neuron").detail
    node.write("proc/sys/net/ipv4/ip_local_reserved_ports", "")
    assert result_of(node.examine(need), "neuron-ports").status == FAIL


def test_the_index_of_roce_is_the_first_with_an_ipv4_address(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add_ports(layer="Ethernet")
    assert result_of(node.examine(Need()), "roce-gids").status == FAIL
    for device in ("mlx5_0", "mlx5_1"):
        place = f"sys/class/infiniband/{device}/ports/1"
        for index, kind, gid in (
            (0, "IB/RoCE v1", "fe80::1"),
            (3, "RoCE v2", "0000:0000:0000:0000:0000:ffff:c000:0201"),
        ):
            node.write(f"{place}/gids/{index}", gid)
            node.write(f"{place}/gid_attrs/types/{index}", kind)
    result = result_of(node.examine(Need()), "roce-gids")
    assert (result.status, result.detail) == (PASS, "NCCL_IB_GID_INDEX=3")


def test_one_of_a_domain_of_several_nodes_needs_a_channel(node: Node) -> None:
    assert result_of(node.examine(), "imex").status == NOT_RUN
    assert result_of(node.examine(replace(NEED, imex=True)), "imex").status == FAIL


PLACES = {
    "compute node": ({"proc/77/comm": "slurmd", "proc/77/status": "Uid:\t0\t0\t0\t0"}, (), {}),
    "login node": ({}, ("srun",), {}),
    "machine without Slurm": ({}, (), {}),
    "container of a job": ({}, (), {"SLURM_JOB_ID": "7"}),
    "container": ({}, (), {}),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_place_is_recognised(place: str, tmp_path: Path) -> None:
    files, programs, environ = PLACES[place]
    node = Node(tmp_path)
    if "proc/77/comm" not in files:
        (node.root / "proc/77/comm").unlink()
    if "container" in place:
        (node.root / "proc/self/ns/user").unlink()
        node.link("proc/self/ns/user", "user:[4026532575]")
    for name in programs:
        node.program(name, "exit 1")
    found = node.examine(Need(), **environ)
    assert found.facts["place"] == place


@pytest.mark.parametrize("name", check_names())
def test_a_check_has_a_group_and_a_function(name: str) -> None:
    module = importlib.import_module(f"envbuild.doctor.checks.{name}")
    assert module.GROUP in GROUPS
    assert list(inspect.signature(module.check).parameters) == ["host", "need"]
    assert module.__doc__


def test_every_failure_has_a_severity_and_a_command(tmp_path: Path) -> None:
    found = Node(tmp_path).examine()
    assert found.failures
    assert all(one.severity in SEVERITIES and one.fix for one in found.failures)


def test_checks_by_system_calls_do_not_run_on_a_copy_of_files(node: Node) -> None:
    found = node.examine()
    assert {one.check for one in found.results if one.status == NOT_RUN} >= OF_THE_SYSTEM


def test_an_older_kernel_that_mounts_overlays_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "FLOOR", "99")
    step, number = user_namespaces.try_mount(overlay=True)
    (result,) = kernel.check(Host(), Need())
    assert result.status == (FAIL if number else PASS), user_namespaces.STEPS[step]
    assert ("an overlay was mounted" in result.detail) is not bool(number)


def test_a_check_that_raises_did_not_run(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(host: object, need: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(kernel, "check", fail)
    result = result_of(node.examine(), "kernel")
    assert (result.status, "broken" in result.detail) == (NOT_RUN, True)
