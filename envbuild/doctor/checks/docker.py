"""Docker Engine answers its client."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.place import is_container
from ..host import Host
from ..model import MINOR, Need, Result, failed, not_applicable, not_run, passed
from ..tools.docker import COMMAND, parse_docker
from .subordinate_ids import user_name

GROUP = "containers"


def check(host: Host, need: Need) -> Iterator[Result]:
    """Read the versions of client and Engine."""
    if not host.programs.find(COMMAND[0]):
        yield not_applicable("docker is not installed")
        return
    output = host.output(*COMMAND)
    found = parse_docker(output.text)
    if output.fault:
        yield not_run(output.fault)
    elif found and found.engine:
        yield passed(f"Engine {found.engine}, client {found.client}" + (f" ({found.name})" if found.name else ""))
    elif "permission denied" in output.errors.lower():
        fix = f"as root: usermod -aG docker {user_name()}, then log in again: the group has all rights of root"
        yield failed("the user may not use the Engine's socket", MINOR, fix)
    elif found is None and not output.errors:
        yield not_run("the output of docker version is truncated")
    elif is_container(host):
        yield not_applicable("no Docker Engine answers in this container")
    else:
        client = f", client {found.client}" if found and found.client else ""
        start = "systemctl start docker" if host.has("/run/systemd/system") else "start dockerd as root"
        yield failed(f"no Docker Engine answers{client}", MINOR, f"{start}, or set DOCKER_HOST")
