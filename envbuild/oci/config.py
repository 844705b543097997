"""The configuration of an image: what it runs with, and which layers it is made of (OCI image spec, config.md).

The same document serves Docker, whose image format it descends from; the id of an image in Docker is its sha256.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from envbuild.core.json_text import canonical_json
from envbuild.core.store.store import LayerRecord


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """Run-time half of an image: OCI config values.

    `labels` are single-line. Images of envbuild's own have no `entrypoint`, `volumes` and `user`; third-party ones may.
    """

    architecture: str = "amd64"
    env: Mapping[str, str] = field(default_factory=dict)
    cmd: tuple[str, ...] = ("/bin/bash",)
    workdir: str = "/"
    labels: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    user: str = ""


def config_json(layers: Sequence[LayerRecord], config: ImageConfig, epoch: int) -> bytes:
    """Return the configuration of an image of `layers` (bottom first), created at `epoch` (seconds).

    The same input results in the same bytes.
    """
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    more = {
        "Entrypoint": list(config.entrypoint),
        "Volumes": {volume: {} for volume in config.volumes},
        "User": config.user,
    }
    return canonical_json(
        {
            "architecture": config.architecture,
            "config": {
                "Cmd": list(config.cmd),
                "Env": [f"{name}={value}" for name, value in config.env.items()],
                "Labels": dict(config.labels),
                "WorkingDir": config.workdir,
                **{key: value for key, value in more.items() if value},
            },
            "created": created,
            "history": [{"created": created, "created_by": f"envbuild unit {layer.unit}".rstrip()} for layer in layers],
            "os": "linux",
            "rootfs": {"diff_ids": [layer.diff_id for layer in layers], "type": "layers"},
        }
    )


def parse_rfc3339(created: str) -> int:
    """Return a time of RFC 3339 in seconds since 1970; 0 for a text that is not a time."""
    try:
        return max(0, int(datetime.fromisoformat(re.sub(r"\.\d+", "", created)).timestamp()))
    except ValueError:
        return 0
