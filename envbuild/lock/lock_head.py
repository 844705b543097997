"""The head of a lock file: what a run that finds nothing to do reads of it, in place of all its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple


class LockHead(NamedTuple):
    """What the version matrix wants to know of a lock: see `Lock`."""

    inputs: str
    chosen: Mapping[str, str]
    settled: Mapping[str, str]


def read_head(path: Path) -> LockHead:
    """Return the head of a lock file (all of it is long to read); an empty one without a lock, or from one that is
    damaged: whoever needs the lock itself says so."""
    import yaml

    head: list[str] = []
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                if line.startswith("waivers:"):
                    break
                head.append(line)
        value = yaml.load("".join(head), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        chosen, settled = (read_texts(value.get(key, {}), key) for key in ("chosen", "settled"))
        return LockHead(read_text(value.get("inputs", ""), "inputs"), chosen, settled)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError, AttributeError, RecursionError):
        return LockHead("", {}, {})


def read_text(value: object, key: str) -> str:
    """Return the value of a key that must be text. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"'{key}' is not text")
    return value


def read_texts(value: Mapping[str, Any], key: str) -> dict[str, str]:
    """Return the value of a key whose values must be texts. Raises ValueError."""
    return {read_text(name, key): read_text(item, f"{key}.{name}") for name, item in value.items()}
