"""``docker version --format "{{json .}}"``: the client, and the Engine that answers it."""

from __future__ import annotations

import json
from typing import NamedTuple

COMMAND = ("docker", "version", "--format", "{{json .}}")


class DockerVersions(NamedTuple):
    """Versions; "" without an answer of the Engine. `name`: of the Engine's edition."""

    client: str
    engine: str
    name: str = ""


def parse_docker(text: str) -> DockerVersions | None:
    """Return the versions; None for a text that is not whole."""
    try:
        data = json.loads(text)
        client, server = data.get("Client") or {}, data.get("Server") or {}
        name = (server.get("Platform") or {}).get("Name", "")
        return DockerVersions(str(client.get("Version", "")), str(server.get("Version", "")), str(name))
    except (ValueError, AttributeError):
        return None
