"""The fixed modification time of files in layers: the same on every machine."""

from __future__ import annotations

TIME = 315532800  # 1980-01-01, the earliest that a zip archive can hold
