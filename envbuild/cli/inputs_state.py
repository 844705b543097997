"""The inputs of an image before it is locked: which place of this site supplies each origin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envbuild.core.text import human_list
from envbuild.lock.inputs import requested_origins, supplier
from envbuild.lock.request import lock_request
from envbuild.spec.resolve import Resolution
from envbuild.spec.workspace import Workspace

NAMED = 4  # origins named in one line


def needs(resolution: Resolution, workspace: Workspace) -> dict[str, list[str]]:
    """Return the origins that a lock of the image needs from elsewhere.

    needs: origins that neither a mirror of the site nor this machine's apt and pip supply.
    needs_mirror: those of them that have no public home either.
    """
    return lacking(suppliers(resolution, workspace))


def suppliers(resolution: Resolution, workspace: Workspace) -> dict[str, str]:
    """Return origin → its supplier here (`envbuild.lock.inputs.supplier`), for all inputs of the lock of an image."""
    return {origin: supplier(workspace.site, origin) for origin in requested_origins(lock_request(resolution))}


def lacking(found: Mapping[str, str]) -> dict[str, list[str]]:
    """Return what `needs` does, of origins whose suppliers are known."""
    return {
        "needs": [origin for origin, by in found.items() if by != "mirror"],
        "needs_mirror": [origin for origin, by in found.items() if not by],
    }


def unlocked(rows: list[dict[str, Any]]) -> list[str]:
    """Return a line for each image without a lock: the next step."""
    lines = []
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        if row["lock"] != "none":
            continue
        network = human_list([origin for origin in row["needs"] if origin not in row["needs_mirror"]], NAMED)
        without = human_list(row["needs_mirror"], NAMED)
        parts = [f"needs mirrors of {without}" if without else f"envbuild lock {row['name']}"]
        if network:
            parts.append(f"takes {network} from public places" if without else f"locks from public places ({network})")
        lines.append(f"  {row['name']:{width}}  {'; '.join(parts)}")
    return ["not locked (mirrors are named in site.yaml):", *lines] if lines else []
