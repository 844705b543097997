"""JSON: of strangers, where every fault is one kind of error, and in the one form that has a digest."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

MOST = 1 << 63  # numbers are smaller
DIGITS = 20  # of them, with the sign
# Of a text of a stranger: a list or an object takes up to 250 bytes of memory, any value up to 100.
MAX_CONTAINERS, MAX_VALUES = 1_000_000, 5_000_000
DEEPEST = 32  # levels: an answer has as many blanks on each line as its value is deep, and no real document has half


def json_value(content: bytes | str) -> Any:
    """Return the value of a JSON text. Raises ValueError, also for NaN and infinity, which JSON does not have, and for
    a text that is nested too deeply or that would take much more memory than its text."""
    check_count(content)
    return _load(content, parse_float=_finite_number, parse_constant=_refuse_number)


def record_value(content: bytes | str) -> Any:
    """Return the value of a JSON text of envbuild's own, which another user may have written: every number fits into 64
    bits, and into a float. Raises ValueError as `json_value` does."""
    check_count(content)
    return _load(content, parse_int=_whole_number, parse_float=_finite_number, parse_constant=_refuse_number)


def check_count(content: bytes | str) -> None:
    """Raise ValueError for a JSON text that would take much more memory than the text itself."""
    text = content.encode(errors="surrogatepass") if isinstance(content, str) else content
    # Signs in texts are counted, too: no real document comes near the limits.
    if text.count(b"{") + text.count(b"[") > MAX_CONTAINERS or text.count(b",") > MAX_VALUES:
        raise ValueError("it has too many values")


def check_depth(value: Any) -> None:
    """Raise ValueError for a value that was read as JSON and has more than `DEEPEST` levels."""
    level = [value]
    for _ in range(DEEPEST + 1):
        parents = [item for item in level if isinstance(item, (dict, list))]
        if not parents:
            return
        level = [child for item in parents for child in (item.values() if isinstance(item, dict) else item)]
    raise ValueError(f"it has lists and objects of more than {DEEPEST} levels")


def canonical_json(value: Any) -> bytes:
    """Return JSON with sorted keys and no spaces: one value, one digest."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def check_writable(value: Any) -> None:
    """Raise ValueError for a value that was read as JSON and that other programs could not read again: a lone
    surrogate, NaN and infinity have no form in JSON and UTF-8."""
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


def _load(content: bytes | str, **options: Any) -> Any:
    try:
        value = json.loads(content, **options)
    except RecursionError:
        raise ValueError(f"it has lists and objects of more than {DEEPEST} levels") from None
    check_depth(value)
    return value


def _whole_number(text: str) -> int:
    number = int(text) if len(text) <= DIGITS else MOST
    return number if -MOST <= number < MOST else _refuse_number(text)


def _finite_number(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_number(text)


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"the number {text[:DIGITS]} is not finite, or too large")
