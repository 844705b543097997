"""The answer of a command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Result:
    """A command's answer, as data for scripts and as text."""

    data: Mapping[str, Any]
    text: str
