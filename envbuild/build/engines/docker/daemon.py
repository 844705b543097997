"""The Docker Engine of this machine, and the program ``docker`` that starts BuildKit in it.

The Docker SDK answers for the daemon. It has the API of the older builder alone, so builds are started by the program.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild.build.engines.base import Probe
from envbuild.build.engines.docker.program import Program, UnusableError, find_program
from envbuild.core.errors import EngineError
from envbuild.core.install_hint import install_hint
from envbuild.core.shell import shell_word
from envbuild.core.userns import id_maps
from envbuild.core.userns.diagnose import fix_for
from envbuild.oci.docker_engine import START, connect_engine

NAME = "docker"
SOCKET = "/var/run/docker.sock"
PREFIX = "unix://"
OLDEST = (1, 41)  # of the API: Docker 20.10, whose own Dockerfile frontend knows RUN --mount
OCI = (1, 42)  # Docker 23: exporters of OCI layouts, and SOURCE_DATE_EPOCH
DRIVERS = ("overlay2", "overlayfs")  # the second with the image store of containerd
NATIVE = "Native Overlay Diff"  # of overlay2: layers are what overlayfs has above, not the result of a comparison
CAUTION = "engine docker confines steps less than engine embedded does (docs/security.md)"
LACKS = "no oci exporter, no SOURCE_DATE_EPOCH: envbuild reads its layers and packs them itself"


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon that can build: its socket, the program, and its description."""

    socket: str
    program: Program
    detail: str


def probe() -> Probe:
    """Return whether there is a daemon on this machine that can build, and a program that starts BuildKit in it."""
    try:
        daemon = find_daemon()
    except UnusableError as error:
        return Probe(NAME, False, error.step, error.message, error.hint)
    return Probe(NAME, True, detail=daemon.detail, caution=CAUTION)


def find_daemon() -> Daemon:
    """Return the daemon that DOCKER_HOST names, or the usual one. Raises UnusableError."""
    socket = find_socket()
    check_socket(socket)
    try:
        with contextlib.closing(connect_engine(START)) as engine:
            version, info = engine.version(), engine.info()
    except EngineError as error:
        raise UnusableError("reach the daemon", error.message, error.hint) from None
    check_version(version, info)
    program = find_program()
    if os.geteuid() != 0 and not id_maps.has_subordinate_ids():
        why = f"this user has fewer than {id_maps.NEEDED_IDS} subordinate ids, to read layers of all owners"
        raise UnusableError("subordinate ids", why, fix_for("subordinate ids"))
    lacks = f" ({LACKS})" if api_version(version) < OCI else ""
    how = "docker buildx build" if program.buildx else "docker build"
    return Daemon(
        socket,
        program,
        f"Docker Engine {version.get('Version', '')}{lacks}, storage driver {info.get('Driver', '')}, {how}",
    )


def find_socket() -> str:
    """Return the path of the daemon's socket. Raises UnusableError for a daemon that may be on another machine."""
    host = os.environ.get("DOCKER_HOST") or PREFIX + SOCKET
    if not host.startswith(PREFIX):
        raise UnusableError(
            "find the daemon",
            f"DOCKER_HOST is {host[:200]}, which may be another machine: all inputs of the image would be sent there",
            f"export DOCKER_HOST={PREFIX}{SOCKET}, or run envbuild on that machine",
        )
    return host.removeprefix(PREFIX)


def check_socket(socket: str) -> None:
    """Raise UnusableError for a socket that is not there, or that this user may not use."""
    path = Path(socket)
    try:
        group = path.stat().st_gid
    except PermissionError:
        group = -1
    except OSError:
        raise UnusableError(
            "find the daemon",
            f"there is no socket {socket}: Docker is not installed, or does not run",
            f"sudo systemctl start docker, or first {install_hint('docker.io')}",
        ) from None
    if not os.access(path, os.R_OK | os.W_OK):
        raise UnusableError(
            "use the daemon",
            f"this user may not use {socket}; who may has the rights of root on this machine",
            f"sudo usermod --append --groups {shell_word(group_name(group))} $USER, then log in again",
        )


def group_name(group: int) -> str:
    """Return the name of the group of a socket; the usual one where it has none, or is root's."""
    import grp

    with contextlib.suppress(KeyError):
        if group > 0:
            return grp.getgrgid(group).gr_name
    return "docker"


def check_version(version: Mapping[str, Any], info: Mapping[str, Any]) -> None:
    """Raise UnusableError for a daemon that is too old, rootless, builds no images of Linux, or finds out by comparison
    what a step wrote: a file that a step wrote again as it was would be lost."""
    if api_version(version) < OLDEST:
        why = f"Docker Engine is {version.get('Version', 'of an unknown version')}; 20.10 or later is needed"
        raise UnusableError("version", why, "install a newer Docker Engine")
    if info.get("OSType") != "linux":
        raise UnusableError("version", f"it builds images of {info.get('OSType')!r}", "switch it to Linux containers")
    if any("name=rootless" in str(item) for item in info.get("SecurityOptions") or ()):
        raise UnusableError(
            "isolation",
            "it is rootless, and there steps of BuildKit have the network of its user",
            "export DOCKER_HOST=unix:///var/run/docker.sock for a daemon of root",
        )
    driver, status = str(info.get("Driver", "")), {str(name): value for name, value in info.get("DriverStatus") or ()}
    if driver not in DRIVERS or status.get(NATIVE, "true") != "true":
        raise UnusableError(
            "storage driver",
            f"the storage driver {driver} of Docker compares files to find out what a step wrote",
            'write "storage-driver": "overlay2" into /etc/docker/daemon.json, on a file system that it runs on',
        )


def api_version(version: Mapping[str, Any]) -> tuple[int, int]:
    """Return the version of the daemon's API; (0, 0) if it states none."""
    found = re.match(r"(\d+)\.(\d+)", str(version.get("ApiVersion", "")))
    return (int(found[1]), int(found[2])) if found else (0, 0)
