"""Pins: the packages that uv resolved, read from the requirements file that it writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==(\S+)")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
# Only annotations list the users of a package: a pylock.toml of uv 0.13 has the same hashes and no dependencies.
VIA = re.compile(r"^ +# via (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Pin:
    """One resolved package: `hashes` are the sha256 of all its files in the index; `via` its users, as uv
    lists them."""

    name: str
    version: str
    hashes: frozenset[str]
    via: str = ""

    @property
    def users(self) -> tuple[str, ...]:
        """The packages among its users."""
        return tuple(name for name in self.via.split(", ") if re.fullmatch(r"[a-z0-9][a-z0-9-]*", name))


def changed_names(keep: Mapping[str, str], pins: Mapping[str, Pin]) -> list[str]:
    """Return the names that are in `pins` with another version than in `keep`."""
    return [name for name, version in keep.items() if name in pins and pins[name].version != version]


def parse_pins(text: str) -> dict[str, Pin]:
    """Return the pins of a requirements file with hashes, by normalized name."""
    pins: dict[str, Pin] = {}
    for block in re.split(r"\n(?=\S)", text):
        if match := PIN.match(block):
            via = VIA.search(block)
            pins[match[1]] = Pin(match[1], match[2], frozenset(HASH.findall(block)), via[1] if via else "")
    return pins
