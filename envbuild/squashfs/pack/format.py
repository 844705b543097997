"""The format of packs: how a layer is compressed for squashfs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PackFormat:
    """Codec, level, and block size in bytes."""

    codec: str = "zstd"
    level: int = 3
    block: int = 131072
