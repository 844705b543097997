"""The programs of doctor.md for Slurm and NHC, as they are printed, and the command that resumes a node."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from envbuild.doctor.health_check import END, LONGEST, PREFIX, drain_reason, draining_failures, health_lines
from envbuild.doctor.model import HARDWARE, MINOR, Need, Result
from tests.support.node_files import Node

pytestmark = pytest.mark.unit
DOC = Path(__file__).parents[2] / "docs/doctor.md"
REASON = "envbuild doctor: xid: XID 79"
DRAIN = f"scontrol update NodeName=n1 State=DRAIN Reason='{REASON}'"


def block(language: str) -> str:
    """Return the program of a language in doctor.md."""
    (found,) = re.findall(rf"(?s)```{language}\n(.*?)```", DOC.read_text())
    return str(found)


def fake_doctor(folder: Path, lines: str, code: int) -> str:
    """Write a doctor that prints lines and has an exit code. Return its path."""
    path = folder / "doctor.py"
    path.write_text(f"import sys\nprint({lines!r})\nsys.exit({code})\n")
    return str(path)


def run_program(folder: Path, lines: str, code: int) -> tuple[int, str, str]:
    """Return the exit code of the HealthCheckProgram, the log, and the commands of scontrol."""
    bodies = {
        "logger": f'cat >> {folder}/log < /dev/stdin; echo "$@" >> {folder}/log',
        "scontrol": f'echo "$@" >> {folder}/commands',
    }
    (folder / "bin").mkdir()
    for name, body in bodies.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / "bin" / name).chmod(0o755)
    text = block("sh").replace("/opt/slurm/bin", f"{folder}/bin").replace("/usr/sbin:", f"{folder}/bin:/usr/sbin:")
    text = text.replace("/usr/local/lib/envbuild-doctor.py", fake_doctor(folder, lines, code))
    (folder / "health").write_text(text)
    (folder / "health").chmod(0o755)
    # slurmd's environment: no PATH (so that a shell has its own, which it does not export)
    done = subprocess.run([str(folder / "health")], env={"SLURMD_NODENAME": "n1", "PWD": "/"}, check=False, timeout=60)
    read = [folder / "log", folder / "commands"]
    log, commands = (path.read_text() if path.exists() else "" for path in read)
    return done.returncode, log, commands


@pytest.mark.parametrize(("lines", "code", "commands"), [
    ("", 0, ""),
    (f"xid: XID 79 (hardware; reboot)\n{DRAIN}", 7, f"update NodeName=n1 State=DRAIN Reason={REASON}\n"),
    ("scontrol update NodeName=n1 State=RESUME", 0, "update NodeName=n1 State=RESUME\n"),
    ("xid: XID 79 (hardware; reboot)", 7, ""),  # drained for another reason already
    (f"error: Python >= 3.8 is needed\n{DRAIN}", 2, ""), ("", 127, ""),
])  # fmt: skip
def test_the_program_of_slurm_drains_and_resumes(lines: str, code: int, commands: str, tmp_path: Path) -> None:
    done, log, executed = run_program(tmp_path, lines, code)
    assert (done, executed) == (0, commands)  # slurmd repeats another code, and is not registered
    assert all(line in log for line in lines.splitlines())


@pytest.mark.parametrize(("code", "words"), [(0, ""), (7, "1 envbuild_doctor: a\n"), (2, ""), (127, "")])
def test_the_check_of_nhc_drains_for_failures_alone(code: int, words: str, tmp_path: Path) -> None:
    doctor = fake_doctor(tmp_path, "envbuild_doctor: a\nenvbuild_doctor: b", code)
    text = block("bash").replace("/usr/local/lib/envbuild-doctor.py", doctor)
    script = f'die() {{ echo "$*"; }}\n{text}\ncheck_envbuild'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, bool(done.returncode)) == (words, code == 7)


def drain(node: Node, reason: str, state: str = "IDLE+DRAIN") -> None:
    """Write a drained node into Slurm's answer."""
    tail = f"AllocTRES= Reason={reason} [root@2026-11-28T10:00:00]"
    node.program("scontrol", f"echo 'NodeName=n1 Gres=gpu:2 State={state} CfgTRES=cpu=96,gres/gpu=2 {tail}'")


@pytest.mark.parametrize(("reason", "state", "resumes"), [
    (f"{PREFIX}rdma-ports: down{END}", "IDLE+DRAIN", True),
    (f"{PREFIX}xid: XID 79; rdma-ports: x{END}", "IDLE+DRAIN", True),
    ("by hand: rdma-ports: not active", "IDLE+DRAIN", False),
    (f"{PREFIX}clock: x{END}", "IDLE+DRAIN", False),  # not run
    (f"{PREFIX}rdma-ports: x; and 3 more{END}", "IDLE+DRAIN", False),
    (f"{PREFIX}rdma-ports: x{END}", "DOWN+DRAIN", False),
    (f"{PREFIX}another: x{END}", "IDLE+DRAIN", False), ("rdma-ports: x", "IDLE", False),
    (f"{PREFIX}rdma-ports: x{END}", "IDLE+DRAIN+REBOOT_REQUESTED", False),
    (f"{PREFIX}rdma-ports: x -- keep down, RMA 4711", "IDLE+DRAIN", False),
    (f"{PREFIX}rdma-ports: x{END} RMA 4711", "IDLE+DRAIN", False),
    (f"{PREFIX}link-errors: x{END}", "IDLE+DRAIN", False),
    (f"{PREFIX}rdma-ports: x; gpu-pcie: y{END}", "IDLE+DRAIN", False),
])  # fmt: skip
def test_a_node_that_the_doctor_drained_is_resumed(reason: str, state: str, resumes: bool, node: Node) -> None:
    drain(node, reason, state)
    found = node.examine()
    assert health_lines(found, "healthcheck") == (["scontrol update NodeName=n1 State=RESUME"] if resumes else [])
    assert health_lines(found, "nhc") == draining_failures(found) == []
    node.write_port("mlx5_1", state="1: DOWN", physical="2: Polling")
    assert not [line for line in health_lines(node.examine(), "healthcheck") if "RESUME" in line]


def test_a_node_whose_fault_is_minor_without_a_target_is_not_resumed(node: Node) -> None:
    """It was drained by a pass with a target, of which each port counts."""
    drain(node, f"{PREFIX}rdma-ports: down{END}")
    node.write_port("mlx5_1", state="1: DOWN", physical="2: Polling")
    found = node.examine(Need())
    assert [one.severity for one in found.failures if one.check == "rdma-ports"] == [MINOR]
    assert health_lines(found, "healthcheck") == []


def test_a_drained_node_without_its_gpus_is_not_resumed(node: Node) -> None:
    """What drained it is compared while it is drained, too."""
    drain(node, f"{PREFIX}slurm-gpus: 1 missing")
    node.program("scontrol", (node.bin / "scontrol").read_text().partition("\n")[2].replace("gpu=2", "gpu=3"))
    assert [line.partition(":")[0] for line in health_lines(node.examine(), "healthcheck")] == ["slurm-gpus"]


def test_a_reason_has_the_names_of_its_checks(node: Node) -> None:
    failures = [Result("fail", f"{'x' * 150}; y", HARDWARE, "z", name) for name in ("xid", "rdma-ports", "nvlink")]
    reason = drain_reason(failures)
    assert len(reason) <= LONGEST
    assert all(f"{failure.check}: " in reason for failure in failures)
    many = [Result("fail", "x" * 150, HARDWARE, "z", f"check-{number}") for number in range(20)]
    assert re.search(r"; and \d+ more \(until repaired\)$", drain_reason(many))
    assert len(drain_reason(many)) <= LONGEST
