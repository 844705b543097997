"""What stands between an image and its lock: which of its inputs come from where on this site."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envbuild.core.text import human_list
from envbuild.lock.inputs import requested_origins, supplier
from envbuild.lock.request import lock_request
from envbuild.spec.resolve import Resolution
from envbuild.spec.workspace import Workspace

NAMED = 4  # origins that a line for people names


def needs(resolution: Resolution, workspace: Workspace) -> dict[str, list[str]]:
    """Return what stands between an image and its lock: `needs` are the origins that neither a mirror of the site nor
    this machine's apt and pip supply, `needs_mirror` those of them whose name stands for no public place either."""
    return lacking(suppliers(resolution, workspace))


def suppliers(resolution: Resolution, workspace: Workspace) -> dict[str, str]:
    """Return origin → who supplies it here (`envbuild.lock.inputs.supplier`), of all that the lock of an image asks
    for."""
    return {origin: supplier(workspace.site, origin) for origin in requested_origins(lock_request(resolution))}


def lacking(found: Mapping[str, str]) -> dict[str, list[str]]:
    """Return what `needs` does, of origins whose suppliers are known."""
    return {
        "needs": [origin for origin, by in found.items() if by != "mirror"],
        "needs_mirror": [origin for origin, by in found.items() if not by],
    }


def unlocked(rows: list[dict[str, Any]]) -> list[str]:
    """Return lines for people: the next thing to do for each image that has no lock."""
    lines = []
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        if row["lock"] != "none":
            continue
        network = [origin for origin in row["needs"] if origin not in row["needs_mirror"]]
        without = human_list(row["needs_mirror"], NAMED)
        parts = [f"needs mirrors of {without}" if without else f"envbuild lock {row['name']}"]
        if network:
            parts.append(f"takes {human_list(network, NAMED)} from the network")
        lines.append(f"  {row['name']:{width}}  {'; '.join(parts)}")
    return ["not locked (mirrors are named in site.yaml):", *lines] if lines else []
