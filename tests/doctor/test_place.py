"""The place where the doctor runs: login nodes, compute nodes, containers; and what each may lack."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.doctor.facts.place import find_place, pid_of, slurm_name
from envbuild.doctor.facts.storage import mount_kind
from envbuild.doctor.model import ADMINISTRATOR, FAIL, HARDWARE, PASS, USER, Need
from tests.support.node_files import Node, result_of

pytestmark = pytest.mark.unit


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
    (False, True, USER, "on the host: grep -l 0x15b3"),
    (True, False, ADMINISTRATOR, "modprobe mlx5_ib"),
    (False, False, HARDWARE, "drain the node; switch its power off and on"),
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


@pytest.mark.parametrize(("groups", "program", "is_slurmd"), [
    ("0\t0\t0\t0", "/usr/sbin/slurmd", True), ("0\t0\t0\t0", "", True), ("1004\t1004\t1004\t1004", "", False),
    ("0\t0\t0\t0", "/usr/bin/chfn", False), ("0\t0\t0\t0", "/usr/sbin/slurmd (deleted)", True),
])  # fmt: skip
def test_a_setuid_program_that_a_user_names_slurmd_is_not_slurmd(
    groups: str, program: str, is_slurmd: bool, tmp_path: Path
) -> None:
    """chfn has the user id of root while it waits for its lock, and any name by a link."""
    node = Node(tmp_path)
    node.write("proc/77/status", f"Name:\tslurmd\nUid:\t0\t0\t0\t0\nGid:\t{groups}\n")
    if program:
        node.link("proc/77/exe", program)
    assert bool(pid_of(node.host(), "slurmd")) == is_slurmd


def test_a_second_slurmd_does_not_name_the_node(node: Node) -> None:
    node.write("proc/9/comm", "slurmd")
    node.write("proc/9/status", "Uid:\t0\t0\t0\t0")
    node.write("proc/9/cmdline", "slurmd\0-r\0-Nn7")
    assert slurm_name(node.host()) == "n1"


def test_a_mount_point_with_another_end_of_a_line_states_no_other_mount() -> None:
    line = "21 1 0:3 / / rw - ext4 /dev/sda rw"
    assert mount_kind(f"{line}\n30 21 0:9 / /u\x85x\x0b31\u20031\u20030:9 / /data rw - nfs4 y rw", "/data") == "ext4"
    assert mount_kind(f"{line}\n30 21 0:9 / /a\x8531 1 0:9 / /data rw - nfs4 y rw", "/data") == "ext4"
