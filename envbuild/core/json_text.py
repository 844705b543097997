"""JSON of strangers: every fault in it is one kind of error."""

from __future__ import annotations

import json
from typing import Any


def json_value(content: bytes | str) -> Any:
    """Return the value of a JSON text. Raises ValueError, also for one that is nested too deeply."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it has lists and objects that are nested too deeply") from None
