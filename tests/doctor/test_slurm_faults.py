"""Causes for which programs of Slurm fail, and Slurm's name of a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.doctor.facts.place import find_place, slurm_name
from envbuild.doctor.health_check import health_lines
from envbuild.doctor.model import ADMINISTRATOR, FAIL, HARDWARE, MINOR, NOT_RUN, PASS, Need
from envbuild.doctor.processes import Output
from envbuild.doctor.report_text import report_text
from envbuild.doctor.tools.slurm_fault import slurm_fault
from tests.support.node_files import Node, result_of

pytestmark = pytest.mark.unit

NO_SETTINGS = """srun: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host
srun: error: fetch_config: DNS SRV lookup failed
srun: error: _establish_config_source: failed to fetch config
srun: fatal: Could not establish a configuration source
"""
NO_CONTROLLER = "slurm_load_node error: Unable to contact slurm controller (connect failure)\n"
NO_MUNGE = """error: If munged is up, restart with --num-threads=10
error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file or directory
slurm_load_node error: Protocol authentication error
"""


def fail_with(node: Node, text: str, *names: str) -> None:
    (node.root.parent / "fault.txt").write_text(text)
    for name in names:
        node.program(name, f"cat {node.root.parent}/fault.txt >&2; exit 1")


@pytest.mark.parametrize(("text", "detail", "fix"), [
    (NO_CONTROLLER, "Slurm's controller does not answer: slurm_load_node error", "scontrol ping"),
    (NO_MUNGE, "munge of this machine does not answer: error: Munge encode failed", "on this machine: systemctl"),
    (NO_SETTINGS, "Slurm's programs find no slurm.conf here: srun: fatal", "export SLURM_CONF="),
])  # fmt: skip
def test_a_compute_node_without_an_answer_fails_and_is_not_drained(
    text: str, detail: str, fix: str, node: Node
) -> None:
    fail_with(node, text, "scontrol")
    found = node.examine()
    result = result_of(found, "slurm-node")
    assert (result.status, result.severity, result.drains) == (FAIL, ADMINISTRATOR, False)
    assert result.detail.startswith(detail) and result.fix.startswith(fix)
    assert health_lines(found, "healthcheck") == []


def test_a_name_that_slurm_does_not_know_is_not_run_and_in_no_command(node: Node) -> None:
    node.program("scontrol", "echo 'Node n1 not found'; exit 1")
    node.write_port("mlx5_1", state="1: DOWN", physical="3: Disabled")
    found = node.examine()
    result = result_of(found, "slurm-node")
    assert (result.status, result.fix.split(";")[0]) == (NOT_RUN, "export SLURMD_NODENAME=NAME")
    assert health_lines(found, "healthcheck")[-1].startswith("# scontrol update NodeName=NODE ")


@pytest.mark.parametrize(("command", "name"), [
    ("/usr/sbin/slurmd\0-D\0-N\0gpu-7\0-s\0", "gpu-7"), ("slurmd\0-Ngpu-7", "gpu-7"), ("slurmd\0-D\0-s\0", "n1"),
])  # fmt: skip
def test_the_name_that_slurmd_was_started_with_is_the_nodes(command: str, name: str, tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write("proc/77/cmdline", command)
    assert slurm_name(node.host()) == name
    assert slurm_name(node.host(SLURMD_NODENAME="other")) == "other"


def test_two_daemons_of_one_machine_give_it_no_name(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write("proc/77/cmdline", "slurmd\0-N\0a")
    node.write("proc/78/comm", "slurmd")
    node.write("proc/78/status", "Uid:\t0\t0\t0\t0")
    node.write("proc/78/cmdline", "slurmd\0-N\0b")
    assert slurm_name(node.host()) == "n1"


def test_missing_settings_are_one_line_with_a_hint(node: Node) -> None:
    fail_with(node, NO_SETTINGS, "srun")
    lines = report_text(node.examine()).splitlines()
    (at,) = [number for number, line in enumerate(lines) if "no slurm.conf here" in line]
    assert "pyxis, slurm-mpi: not known: " in lines[at]
    assert lines[at + 1].strip().startswith("to run it: export SLURM_CONF=")


def test_a_unit_that_cannot_start_makes_no_compute_node(tmp_path: Path) -> None:
    """Debian's package enables slurmd where it is installed, with a condition."""
    node = Node(tmp_path)
    (node.root / "proc/77/comm").unlink()
    unit = "etc/systemd/system/multi-user.target.wants/slurmd.service"
    node.write(unit, "[Unit]\nConditionPathExists=/etc/slurm/slurm.conf\n")
    node.program("srun", "exit 1")
    because = "slurmd is enabled here, and cannot start: /etc/slurm/slurm.conf is missing"
    assert find_place(node.host()) == ("login node", because)
    node.write("etc/slurm/slurm.conf", "")
    assert find_place(node.host())[0] == "compute node"
    (node.root / "etc/slurm/slurm.conf").unlink()
    node.write("etc/systemd/system/slurmd.service.d/site.conf", "[Unit]\nConditionPathExists=\n")
    assert find_place(node.host())[0] == "compute node"


def test_a_stopped_slurmd_without_settings_is_one_failure(node: Node) -> None:
    (node.root / "proc/77/comm").unlink()
    node.write("etc/systemd/system/multi-user.target.wants/slurmd.service", "")
    fail_with(node, NO_SETTINGS, "scontrol", "srun")
    result = result_of(node.examine(), "slurm-node")
    assert result.detail.startswith("slurmd does not run; Slurm's programs find no slurm.conf here")
    assert (result.drains, "; then: " in result.fix) == (False, True)


def test_a_program_that_hangs_may_wait_for_the_controller(node: Node) -> None:
    node.program("scontrol", "sleep 60")
    result = result_of(node.examine(Need(), limit=0.5), "slurm-node")
    assert (result.status, result.fix.split(";")[0]) == (NOT_RUN, "scontrol ping")


def test_another_fault_has_its_first_line_and_no_hint() -> None:
    fault = slurm_fault(Output(errors="spank: error\nsrun: fatal", code=1), "srun --help")
    assert fault == ("srun --help failed with exit code 1: spank: error", "", "")
    assert slurm_fault(Output(text="Could not establish a configuration source"), "srun --help") is None


def test_a_missing_file_of_slurm_conf_is_named_although_slurm_waits_for_it() -> None:
    """Slurm tries for 60 seconds to find it, and is ended before."""
    line = "sinfo: error: s_p_parse_file: unable to status file /x/slurm.conf: No such file or directory, retrying"
    found = slurm_fault(Output("", line, 124, "sinfo did not end within 10 s"), "sinfo")
    assert found and found.cause == "settings" and "/x/slurm.conf" in found.detail
    found = slurm_fault(Output("", "sinfo: error: Incompatible versions of client and server code", 1), "sinfo")
    assert found and found.cause == "versions" and "sinfo --version" in found.fix
    found = slurm_fault(Output("", "", 124, "sinfo did not end within 10 s"), "sinfo")
    assert found and found.fix.startswith("scontrol ping")


def test_a_node_that_does_not_respond_needs_no_resume(node: Node) -> None:
    node.program("scontrol", "echo 'NodeName=n1 State=IDLE+NOT_RESPONDING CfgTRES=cpu=1,gres/gpu=2'")
    result = result_of(node.examine(), "slurm-node")
    assert "RESUME" not in result.fix and "NodeAddr" in result.fix


def test_a_login_node_is_not_drained(node: Node) -> None:
    (node.root / "proc/77/comm").unlink()
    node.write("sys/module/nvidia/version", "550.54.15")
    found = node.examine()
    assert found.facts["place"] == "login node"
    lines = health_lines(found, "healthcheck")
    assert any(line.startswith("nvidia-driver: ") for line in lines) and not any(
        "State=DRAIN" in line for line in lines
    )


def answer(node: Node, state: str, gpus: str = "gres/gpu=2", gres: str = "gpu:2") -> None:
    node.program("scontrol", f"echo 'NodeName=n1 Gres={gres} State={state} CfgTRES=cpu=1,{gpus}'")


@pytest.mark.parametrize(("state", "status", "words"), [
    ("DOWN*", FAIL, "pgrep -x slurmd"), ("DOWN*", FAIL, "State=RESUME"), ("DOWN", FAIL, "State=RESUME"),
    ("IDLE+INVALID_REG", FAIL, "slurmd -C"), ("UNKNOWN", FAIL, "slurmd -C"),
    ("IDLE+BLOCKED", PASS, "it gets no jobs now"), ("IDLE+CLOUD+POWERING_DOWN", PASS, "it gets no jobs now"),
])  # fmt: skip
def test_a_state_without_jobs_has_its_words(state: str, status: str, words: str, node: Node) -> None:
    answer(node, state)
    result = result_of(node.examine(), "slurm-node")
    assert (result.status, words in result.detail + result.fix) == (status, True)
    assert status == PASS or not result.drains


@pytest.mark.parametrize(("gpus", "gres", "status", "severity"), [
    ("gres/gpu=3", "gpu:h100:3", FAIL, HARDWARE), ("gres/gpu=1", "gpu:h100:1", FAIL, MINOR),
    ("gres/gpu=14", "gpu:a100_1g.10gb:14(S:0-1)", PASS, ""),
])  # fmt: skip
def test_slurm_counts_gpus_or_their_partitions(gpus: str, gres: str, status: str, severity: str, node: Node) -> None:
    answer(node, "IDLE", gpus, gres)
    result = result_of(node.examine(), "slurm-gpus")
    assert (result.status, result.severity) == (status, severity)


def test_partitions_are_known_by_the_driver(node: Node) -> None:
    node.change_smi(r"^(    MIG Mode\n +Current +: )Disabled", r"\1Enabled")
    answer(node, "IDLE", "gres/gpu=7", "gpu:7")
    assert result_of(node.examine(), "slurm-gpus").status == PASS


def test_a_zombie_is_no_slurmd(node: Node) -> None:
    node.write("proc/77/status", "Name:\tslurmd\nState:\tZ (zombie)\nUid:\t0\t0\t0\t0\n")
    found = node.examine()
    assert found.facts["place"] == "compute node"
    results = [one for one in found.results if one.check == "slurm-node"]
    assert (results[0].status, results[0].detail) == (FAIL, "slurmd is a zombie")


def test_a_user_who_sees_no_process_of_root_learns_nothing_about_slurmd(node: Node) -> None:
    """Mount option hidepid of /proc: each job had a failure."""
    for name in ("proc/77/comm", "proc/1/comm"):
        (node.root / name).unlink()
    (node.root / "proc/self/stat").touch()
    node.write("etc/systemd/system/multi-user.target.wants/slurmd.service", "")
    found = node.examine()
    assert (found.facts["place"], "/proc shows no process of root" in found.facts["place_because"]) == (
        "compute node", True,
    )  # fmt: skip
    assert result_of(found, "slurm-node").status == PASS
    node.write("proc/1/comm", "systemd")
    assert find_place(node.host(SLURM_JOB_ID="7")) == ("compute node", "job 7 runs here")


def test_slurmd_in_a_pod_makes_a_compute_node(node: Node) -> None:
    node.write("proc/77/cmdline", "slurmd\0-N\0gpu-7")
    (node.root / "proc/self/ns/pid").unlink()
    node.link("proc/self/ns/pid", "pid:[4026532575]")
    assert find_place(node.host()) == ("compute node", "slurmd runs here, in a container")
    assert slurm_name(node.host()) == "gpu-7"
    node.write("proc/77/comm", "bash")
    assert find_place(node.host())[0] == "container"


def test_a_machine_without_slurm_has_no_command_that_drains_it(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (node.root / "proc/77/comm").unlink()
    node.add_gpus("550.54.15")
    found = node.examine()
    assert found.facts["place"] == "machine without Slurm"
    lines = health_lines(found, "healthcheck")
    assert lines and not any("scontrol" in line for line in lines)
