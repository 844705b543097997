"""Programs have a limit, and nothing of them is left behind."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from envbuild.doctor.model import NOT_RUN
from envbuild.doctor.processes import Programs
from tests.support.node_files import Node, result_of

pytestmark = pytest.mark.unit


def is_alive(pid: int) -> bool:
    """Return whether a process exists that is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_program_that_hangs_ends_with_all_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envbuild.doctor.processes.SLOW", {})
    node = Node(tmp_path)
    node.add_gpus()
    (node.bin / "setsid").symlink_to("/usr/bin/setsid")
    body = f"sleep 300 & echo $! > {tmp_path}/child; setsid sleep 300 & echo $! > {tmp_path}/own-session; sleep 300"
    node.program("nvidia-smi", body)
    began = time.monotonic()
    found = node.examine(limit=1.0)
    assert time.monotonic() - began < 6
    assert result_of(found, "gpu-pcie").status == NOT_RUN
    assert "did not end within 1 s" in result_of(found, "gpu-pcie").detail
    pids = [int((tmp_path / name).read_text()) for name in ("child", "own-session")]
    end = time.monotonic() + 10  # a signal takes effect when the process is next scheduled
    while any(map(is_alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    assert [pid for pid in pids if is_alive(pid)] == []


def test_programs_that_hang_are_waited_for_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envbuild.doctor.processes.SLOW", {})
    node = Node(tmp_path)
    node.add_gpus()
    node.add_ports()
    node.add_slurm()
    programs = ("nvidia-smi", "ibv_devinfo", "nvidia-ctk", "ofed_info", "enroot", "srun", "scontrol", "docker")
    for name in programs:
        node.program(name, "sleep 300")
    began = time.monotonic()
    found = node.examine(limit=2.0)
    assert time.monotonic() - began < 6
    waited = [one.detail for one in found.results if "did not end within 2 s" in one.detail]
    named = {word for detail in waited for word in detail.replace(",", " ").split()}
    assert named & {*programs} == {*programs} - {"ofed_info"}  # only a fact


def test_a_program_runs_once(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add_gpus()
    node.add_slurm()
    log = tmp_path / "calls"
    for name in ("nvidia-smi", "scontrol", "srun", "enroot", "nvidia-ctk"):
        script = (node.bin / name).read_text().replace("#!/bin/sh\n", f'#!/bin/sh\necho {name} "$@" >> {log}\n')
        (node.bin / name).write_text(script)
    node.examine()
    calls = log.read_text().splitlines()
    assert sorted(set(calls)) == sorted(calls)
    assert "nvidia-smi -q" in calls


def test_endless_output_is_bounded(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.program("noise", "while :; do echo 0123456789012345678901234567890123456789012345678901234567890123; done")
    programs = Programs({"PATH": node.bin_path()}, limit=3.0)
    output = programs.output("noise")
    assert output.fault
    assert len(output.text) <= 8 << 20


def test_a_program_that_is_missing_or_broken_has_a_fault(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (node.bin / "bad").write_bytes(b"\x7fELF")
    (node.bin / "bad").chmod(0o755)
    programs = Programs({"PATH": str(node.bin)})
    assert programs.output("none").missing
    assert "cannot be started" in programs.output("bad").fault


def test_a_program_that_takes_long_is_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envbuild.doctor.processes.FIRST_WORD", 0.2)
    node = Node(tmp_path)
    node.program("slow", "sleep 1; echo done")
    lines: list[str] = []
    assert Programs({"PATH": node.bin_path()}, notice=lines.append).output("slow", "-a").text == "done\n"
    assert lines == ["waiting for slow -a, at most 10 s"]


def test_programs_that_no_check_read_are_ended(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.program("slow", f"echo $$ > {tmp_path}/pid; sleep 300")
    programs = Programs({"PATH": node.bin_path()})
    programs.start("slow")
    end = time.monotonic() + 20
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < end
        time.sleep(0.02)
    programs.close()
    assert not is_alive(int((tmp_path / "pid").read_text()))
