"""What a command answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Result:
    """A command's answer, for scripts and for people."""

    data: Mapping[str, Any]
    text: str
