"""Names of files and folders until they are finished: beside their place, and no name that a user would write."""

from __future__ import annotations

import re
import secrets

MARK = "envbuild-"  # a date has eight such digits, too


def unfinished_name(name: str) -> str:
    """Return a new name for `name` while it is written."""
    return f".{name}.{MARK}{secrets.token_hex(4)}"


def unfinished_names(name: str, more: str = "") -> re.Pattern[str]:
    """Return the pattern of the names that `unfinished_name` returns for `name`; `more`: a pattern that may follow."""
    return re.compile(rf"\.{re.escape(name)}\.{MARK}[0-9a-f]{{8}}{more}")
