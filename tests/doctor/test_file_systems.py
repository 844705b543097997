"""File systems after an error of their disk, and full ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envbuild.doctor.checks import file_systems
from envbuild.doctor.checks.file_systems import full_folders
from envbuild.doctor.facts.storage import FileSystem
from envbuild.doctor.health_check import health_lines
from envbuild.doctor.host import Host
from envbuild.doctor.model import ADMINISTRATOR, MINOR, NOT_RUN, PASS
from envbuild.doctor.processes import Programs
from tests.support.node_files import Node, result_of

pytestmark = pytest.mark.unit
LINE = "27 1 259:2 / {folder} {options} shared:1 - {kind} /dev/nvme0n1p2 {state}\n"
ROOT = {"folder": "/", "options": "rw,relatime", "kind": "ext4", "state": "rw,errors=remount-ro"}


@pytest.mark.parametrize(("changes", "severity"), [
    ({}, ""), ({"state": "ro,errors=remount-ro"}, ADMINISTRATOR),
    ({"state": "rw,errors=remount-ro,emergency_ro"}, ADMINISTRATOR), ({"state": "rw,shutdown"}, ADMINISTRATOR),
    ({"options": "ro,relatime", "state": "ro"}, ""),  # by its administrator
    ({"kind": "squashfs", "state": "ro"}, ""), ({"kind": "overlay", "state": "ro"}, ""),
    ({"folder": "/tmp", "kind": "xfs", "state": "ro"}, ADMINISTRATOR), ({"folder": "/data", "state": "ro"}, MINOR),
])  # fmt: skip
def test_a_file_system_that_the_kernel_made_read_only(changes: dict[str, str], severity: str, node: Node) -> None:
    """Each job that starts there fails, and the node takes the next one."""
    node.write("proc/self/mountinfo", LINE.format(**{**ROOT, **changes}))
    found = node.examine()
    result = result_of(found, "file-systems")
    assert (result.status == PASS, result.severity) == (not severity, severity)
    assert bool(health_lines(found, "nhc")) == (severity == ADMINISTRATOR)
    assert not severity or "nvme0n1p2" in result.fix


def test_the_files_of_a_container_are_not_those_of_the_node(node: Node) -> None:
    node.enter_container()
    assert result_of(node.examine(), "file-systems").status == NOT_RUN


@pytest.mark.parametrize(("free", "files", "full"), [(0, 9, True), (9, 0, True), (9, -1, False), (9, 9, False)])
def test_a_folder_without_room_is_named(free: int, files: int, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    one = FileSystem("/", "/", "ext4", 100, free, files)
    monkeypatch.setattr(file_systems, "file_system", lambda host, path: one if path == "/" else None)
    assert full_folders(Host()) == (["/"] if full else [])


def test_a_full_disk_is_no_fault_of_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path)
    node.program("nvidia-smi", "echo text")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    assert Programs({"PATH": node.bin_path()}).output("nvidia-smi").text == "text\n"
    monkeypatch.delattr(os, "memfd_create")
    assert "no file for its output" in Programs({"PATH": node.bin_path()}).output("nvidia-smi").fault
