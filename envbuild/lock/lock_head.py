"""The head of a lock file: the only part that a run without work reads, not all the inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from envbuild.core.plain_yaml import MAX_BYTES, load_plain
from envbuild.core.regular_file import read_bounded


class LockHead(NamedTuple):
    """The fields of a lock that the version matrix needs: see `Lock`."""

    inputs: str
    chosen: Mapping[str, str]
    settled: Mapping[str, str]  # prose: keep


def read_head(path: Path) -> LockHead:
    """Return the head of a lock file (all of it is long to read); an empty one if there is no lock or it is
    damaged: the reader of the whole lock reports that."""
    import yaml

    try:
        text = read_bounded(path, MAX_BYTES).decode()
        value = load_plain(text.partition("\nwaivers:")[0])
        chosen, picked = (read_texts(value.get(key, {}), key) for key in ("chosen", "settled"))
        return LockHead(read_text(value.get("inputs", ""), "inputs"), chosen, picked)
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
