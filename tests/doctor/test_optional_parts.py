"""Parts that a site may have and not use, and what loads or makes itself: none of these drains a node."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from envbuild.doctor.checks import gpu_devices, user_namespaces
from envbuild.doctor.facts import enroot_settings
from envbuild.doctor.facts.enroot_settings import closed_folders
from envbuild.doctor.health_check import health_lines
from envbuild.doctor.model import ADMINISTRATOR, FAIL, MINOR, PASS, Need
from tests.support.node_files import NEED, Node, result_of

pytestmark = pytest.mark.unit


def devinfo(*names: str) -> str:
    """Return a program that prints devices as ibv_devinfo does."""
    lines = (
        r"hca_id:\t%s\n\ttransport:\tInfiniBand (0)\n\tphys_port_cnt:\t1\n\t\tport:\t1\n\t\t\tlink_layer:\tInfiniBand\n"
    )
    return f"for one in {' '.join(names)}; do printf '{lines}' $one; done"


@pytest.mark.parametrize(("setuid", "enroot", "docker", "severity"), [
    (True, False, False, MINOR), (False, False, True, MINOR), (False, False, False, ADMINISTRATOR),
    (True, True, True, ADMINISTRATOR),
])  # fmt: skip
def test_a_module_that_the_first_program_loads(
    setuid: bool, enroot: bool, docker: bool, severity: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node.root / "dev/nvidia-uvm").unlink()
    monkeypatch.setattr(gpu_devices, "is_setuid", lambda program: setuid)
    if not enroot:
        (node.bin / "enroot").unlink()
        node.program("srun", "echo '  --help'; echo '  --usage'")
    if docker:
        node.program("docker", "exit 1")
    found = node.examine()
    result = result_of(found, "gpu-devices")
    assert (result.status, result.severity, "for each boot: " in result.fix) == (FAIL, severity, True)
    assert bool(health_lines(found, "nhc")) == (severity == ADMINISTRATOR)


def test_enroot_without_pyxis_is_a_way_of_a_site(node: Node) -> None:
    node.program("srun", "echo '  --help'; echo '  --usage'")
    found = node.examine()
    assert result_of(found, "pyxis").severity == MINOR
    assert health_lines(found, "nhc") == []


def test_docker_without_the_toolkit_drains_no_node(node: Node) -> None:
    for name in ("nvidia-ctk", "nvidia-container-cli", "enroot"):
        (node.bin / name).unlink()
    node.program("srun", "echo '  --help'; echo '  --usage'")
    node.program("docker", "exit 1")
    found = node.examine()
    result = result_of(found, "nvidia-container-toolkit")
    assert (result.severity, "NVIDIA's repository" in result.fix) == (MINOR, True)
    assert health_lines(found, "nhc") == []


def test_an_onboard_adapter_without_a_provider_is_named_and_drains_no_node(node: Node) -> None:
    node.write_port("irdma0", state="1: DOWN", physical="3: Disabled", rate="10 Gb/sec (4X SDR)", layer="Ethernet")
    node.write("dev/infiniband/uverbs2", "")
    node.program("ibv_devinfo", devinfo("mlx5_0", "mlx5_1"))
    for need in (NEED, Need()):
        found = node.examine(need)
        result = result_of(found, "verbs-devices")
        assert (result.severity, "2 of 3 devices, without irdma0" in result.detail) == (MINOR, True)
        assert health_lines(found, "nhc") == []
    node.program("ibv_devinfo", devinfo("mlx5_0", "irdma0"))
    assert result_of(node.examine(), "verbs-devices").severity == ADMINISTRATOR


def test_no_folder_of_enroot_is_made(node: Node) -> None:
    """As root, its folders would have a mode that no user passes, and each container of the node would fail."""
    (node.bin / "mkdir").symlink_to("/bin/mkdir")
    names = ("ENROOT_CACHE_PATH", "ENROOT_DATA_PATH", "ENROOT_RUNTIME_PATH")
    folders = {name: str(node.root / name.lower()) for name in names}
    lines = [f': "${{{name}:={path}}}"' for name, path in folders.items()]
    paths = " ".join(f'"${name}"' for name in names)
    node.program("enroot", "\n".join([*lines, f"(umask 077 && mkdir -p {paths})", "echo 3.5.0"]))
    assert result_of(node.examine(), "enroot").status == PASS
    assert not [path for path in folders.values() if os.path.exists(path)]  # noqa: PTH110


@pytest.mark.parametrize(
    ("path", "fix"), [("/run/enroot", "ENROOT_RUNTIME_PATH /run/enroot/user-"), ("/x", "in a folder")]
)
def test_a_folder_that_the_user_may_not_make(path: str, fix: str, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.write("etc/enroot/enroot.conf", f"ENROOT_RUNTIME_PATH {path}\n")
    monkeypatch.setattr(enroot_settings.os, "getuid", lambda: 1000)
    monkeypatch.setattr(enroot_settings.os, "access", lambda path, mode: "/home" in str(path) or "/bin" in str(path))
    node.write("home/me/.cache/x", "")
    node.write("home/me/.local/x", "")
    assert closed_folders(node.host(HOME="/home/me")) == {"ENROOT_RUNTIME_PATH": path}
    result = result_of(node.examine(HOME="/home/me"), "enroot")
    assert (result.severity, fix in result.fix) == (MINOR, True)
    assert result_of(node.examine(HOME="/home/me", SLURM_JOB_ID="7"), "enroot").severity == ADMINISTRATOR


@pytest.mark.parametrize(("program", "severity", "drains"), [
    ("enroot", ADMINISTRATOR, True), ("apptainer", ADMINISTRATOR, False), ("", MINOR, True),
])  # fmt: skip
def test_a_kernel_without_user_namespaces(
    program: str, severity: str, drains: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hardened nodes have none (user.max_user_namespaces=0 of DISA's STIG); without enroot nothing needs one."""
    node = Node(tmp_path)
    node.write("proc/sys/user/max_user_namespaces", "0")
    if program:
        node.program(program, "exit 0")
    host = node.host()
    monkeypatch.setattr(type(host), "is_real", True)
    monkeypatch.setattr(user_namespaces, "try_mount", lambda: (0, errno.ENOSPC))
    (result,) = user_namespaces.check(host, Need())
    assert (result.severity, result.drains) == (severity, drains)
    assert result.detail.endswith("the kernel permits no more (user.max_user_namespaces=0)")
    assert "/etc/sysctl.d/" in result.fix
