"""Rights that root has and users do not: a health check runs as root, and jobs do not."""

from __future__ import annotations

import ctypes
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from envbuild.doctor.checks import user_namespaces
from envbuild.doctor.checks.gpu_devices import closed, open_fault
from envbuild.doctor.checks.subordinate_ids import free_ids
from envbuild.doctor.host import Host
from envbuild.doctor.model import ADMINISTRATOR, FAIL
from envbuild.doctor.processes import Programs
from tests.support.node_files import Node, result_of

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("mode", "owner", "group", "is_closed"), [
    (0o666, 0, 0, False), (0o660, 0, 44, False), (0o600, 1000, 0, False), (0o600, 0, 0, True), (0o660, 0, 0, True),
])  # fmt: skip
def test_a_device_file_of_root_alone_is_closed(mode: int, owner: int, group: int, is_closed: bool) -> None:
    assert bool(closed(stat.S_IFCHR | mode, owner, group)) == is_closed


def test_a_device_that_root_may_open_is_judged_by_its_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_fault(Host(), "/dev/null") == ""
    device = SimpleNamespace(st_mode=stat.S_IFCHR | 0o600, st_uid=0, st_gid=0)
    monkeypatch.setattr(Path, "stat", lambda path: device)
    assert open_fault(Host(), "/dev/null") == "mode 0600, so that users may not open it"


def test_a_device_file_that_is_missing_is_made_by_its_number(node: Node) -> None:
    (node.root / "dev/nvidia1").unlink()
    assert result_of(node.examine(), "gpu-devices").fix.startswith("nvidia-modprobe -u -c 1; ")


@pytest.mark.parametrize("is_root", [True, False])
def test_root_tries_namespaces_as_another_user(is_root: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What root may do, a setting of the kernel forbids to users."""
    called: list[tuple[str, object]] = []
    monkeypatch.setattr(os, "getuid", lambda: 0 if is_root else 1000)
    for name in ("setgroups", "setgid", "setuid"):
        monkeypatch.setattr(os, name, lambda value, name=name: called.append((name, value)))
    monkeypatch.setattr(user_namespaces, "unused_user", lambda uid_map: 4242)
    user_namespaces.become_user(ctypes.CDLL(None))
    assert called == ([("setgroups", []), ("setgid", 4242), ("setuid", 4242)] if is_root else [])


@pytest.mark.parametrize(
    ("uid_map", "first", "last"),
    [
        ("         0          0 4294967295\n", 4_200_000_000, 4_290_000_000),
        ("0 1000 1\n1 100000 65536\n", 32_769, 65_536),
        ("0 1000 1\n", 0, 0),  # root of a user namespace with one id
    ],
)
def test_root_tries_namespaces_as_a_user_without_processes(uid_map: str, first: int, last: int) -> None:
    """One of the user 65534, under which services run, could trace the process that root forked."""
    assert all(first <= user_namespaces.unused_user(uid_map) <= last for _ in range(100))


def test_nvidia_smi_has_more_time_than_other_programs(node: Node) -> None:
    """Without persistence mode it initialises eight GPUs one after another."""
    programs = Programs({}, 10.0)
    assert (programs.limit_of(("nvidia-smi", "-q")), programs.limit_of(("sinfo",))) == (30.0, 10.0)
    node.program("nvidia-smi", "sleep 300")
    result = result_of(node.examine(limit=0.5), "nvidia-driver")
    assert (result.status, result.severity) == (FAIL, ADMINISTRATOR)
    assert "did not end within 2 s" in result.detail


@pytest.mark.parametrize(
    ("subuid", "passwd", "free"),
    [
        ("", "root:x:0:0::/root:/bin/sh\nnobody:x:4294967294:1:::\n", "2001000000-2001065535"),
        ("ann:100000:65536\n", "", "2001000000-2001065535"),  # there a directory may have users that it does not list
        ("ann:2001000000:65536\nbad\n", "eve:x:2001070000:1:::\n", "2001070001-2001135536"),
    ],
)
def test_proposed_subordinate_ids_are_those_of_no_user(subuid: str, passwd: str, free: str) -> None:
    """Two users with one number are one user: each has all files of the other one."""
    assert free_ids([subuid, "", passwd, "users:x:100:\n"]) == free
