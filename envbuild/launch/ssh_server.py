"""The SSH server of an image: the MPI operator starts the workers of an MPIJob with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbuild.core.errors import SpecError
from envbuild.launch.model import LaunchImage
from envbuild.lock.model import Lock

if TYPE_CHECKING:
    from envbuild.squashfs.read.tree import SquashTree

PACKAGE = "openssh-server"
TRIXIE = "systemd-standalone-sysusers, too"  # instead of systemd, whose libraries only its own programs find
PROGRAM = "/usr/sbin/sshd"
# What a pod needs beside: the folder that systemd makes, the operator's key as that of the host (no image has one), and
# no judgement of the modes of a mounted secret (kubeflow/mpi-operator, build/base: Dockerfile and sshd_config).
START = (
    f"mkdir -p /run/sshd && exec {PROGRAM} -De -o HostKey=/root/.ssh/id_rsa -o StrictModes=no"
    " -o AuthorizedKeysFile=/root/.ssh/authorized_keys"
)
# No terminal answers the question about an unknown host. The operator's own value has the last option alone.
CLIENT = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ConnectionAttempts=10"


def has_server(tree: SquashTree) -> bool:
    """Return whether the image of a squashfs file has the server."""
    return tree.lookup(PROGRAM.lstrip("/").encode()) is not None


def locks_server(lock: Lock | None) -> bool | None:
    """Return whether the packages of a lock contain the server; None: not known, as of another image that is its
    base."""
    if lock is None:
        return None
    names = {lock.debian[file].name for unit in lock.image_units() for file in unit.debian}
    return True if PACKAGE in names else None if lock.base_image else False


def require_server(image: LaunchImage) -> None:
    """Raise SpecError for an image that is known to have no server."""
    if image.ssh_server is False:
        then = "; ".join(f"envbuild {command} {image.name}" for command in ("lock", "make", "publish"))
        raise SpecError(
            f"the workers of an MPIJob start {PROGRAM}, and {image.name} has no SSH server",
            hint=f"add {PACKAGE} to debian-packages: of the spec (with debian:13 {TRIXIE}); then: {then}",
        )
