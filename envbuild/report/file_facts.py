"""Facts of a squashfs file for the head of a report."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from envbuild.core.text import amount
from envbuild.lock.model import lock_digest
from envbuild.verify.contents.metadata import ImageMetadata


def lock_date(epoch: int) -> str:
    """Return the date of a lock's epoch, in UTC; empty for a number that is not a date."""
    try:
        return datetime.datetime.fromtimestamp(epoch, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC") if epoch else ""
    except (OverflowError, ValueError, OSError):
        return ""


def file_facts(file: Path, block: dict[str, Any], within: ImageMetadata, sha256: str) -> list[tuple[str, str]]:
    """Return the rows of the head of a file: origin, target, lock, how it starts. sha256: "" if it is not known."""
    level = f" level {block['level']}" if block["level"] else ""
    rows = [
        ("squashfs", str(file)),
        ("size", f"{amount(block['size'])}, {block['codec']}{level}, {block['inodes']} inodes"),
    ]
    if sha256:
        rows.append(("sha256", sha256))
    rows.append(("origin", origin_of(within)))
    for key in ("target", "image"):
        if isinstance(value := within.origin.get(key), str):
            rows.append((key, value))
    if within.lock:
        rows += [("lock", lock_digest(within.lock)), ("inputs until", lock_date(within.lock.epoch))]
        rows += [(f"made with {tool}", version) for tool, version in sorted(within.lock.tools.items())]
    if within.lock_error:
        rows.append(("lock", f"not readable: {within.lock_error}"))
    start = f"{within.command or '?'} in {within.workdir or '/'}" if within.has_start_script else "not recorded"
    return [*rows, ("starts", start), *((f"label {name}", value) for name, value in sorted(within.labels.items()))]


def origin_of(within: ImageMetadata) -> str:
    """Return who wrote the image, as its own records state."""
    if within.origin:
        return "built by envbuild from the lock inside"
    if within.export:
        return "converted by envbuild from an image that was made elsewhere"
    if within.provenance:
        return f"imported by enroot from {within.provenance}"
    return "not recorded: envbuild did not build it"
