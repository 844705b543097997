"""Values of YAML texts of envbuild that another user may have changed: locks, also those inside of images.

PyYAML's composer recurses in C, so deep nesting overflows the stack; a few hundred bytes of aliases and merge keys
expand to gigabytes. libyaml's events have neither fault. Texts as envbuild writes them are recognized without them, in
a tenth of the time.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from typing import Any

MAX_BYTES = 4 << 20  # of a text
MAX_SIGNS = 200_000  # of a text: 4 MiB of nodes took 1.5 GB and 47 s; a lock has 27 to 45 for each file
MAX_DEPTH = 20
# A number in base 60 (YAML 1.1) is computed in the square of its length: one of 380 kB took 13 s.
SIXTIES = re.compile(r"[0-9](?::[0-9]{1,2}){20}")
SIGNS = ("\n", "-", "?", ":", ",", "[", "{")  # each node has one; so have some texts
FLAT = 160  # characters of the longest line: a block collection begins at least one column further in than its parent


def load_plain(text: str) -> Any:
    """Return the value of a YAML text without tags, aliases, merge keys and keys that occur twice. Raises YAMLError,
    ValueError or RecursionError."""
    import yaml

    if len(text) > MAX_BYTES:
        raise ValueError(f"it is longer than {MAX_BYTES >> 20} MiB")
    if sum(map(text.count, SIGNS)) > MAX_SIGNS:
        raise ValueError("it has too many values")
    if SIXTIES.search(text):
        raise ValueError("it has a number in base 60 that is too long")
    loader = _loader()
    if not _is_flat(text):
        _check_events(yaml.parse(text, Loader=loader))
    try:
        return yaml.load(text, Loader=loader)
    except (ArithmeticError, LookupError, TypeError, AttributeError) as error:  # of constructors: 1:0:0…:0.0, ""
        raise ValueError(f"it has a value that cannot be read: {error}") from None


@functools.cache
def _loader() -> Any:
    """Return a loader that refuses a key that a mapping has twice: a reader sees the first one, and the last one would
    count."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            found = super().construct_mapping(node, deep)
            if len(found) != len(node.value):
                counts = Counter(key.value for key, _ in node.value)
                twice = next((key for key, count in counts.items() if count > 1), "")
                raise ValueError(
                    f"it has the key {twice!r:.100} twice in one mapping, from line {node.start_mark.line + 1}"
                )
            return found

    return Loader


def _is_flat(text: str) -> bool:
    """Return whether a text has no tags, aliases and merge keys, and its depth is small."""
    if any(sign in text for sign in ("*", "&", "!", "<<")):
        return False
    if text.count("[") + text.count("{") > MAX_DEPTH or re.search(rf"[^\n]{{{FLAT}}}", text):
        return False
    return not re.search(r"(?m)(?:^|[ \t])[-?:][ \t]+[-?:](?:[ \t]|$)", text)  # several levels in one line


def _check_events(events: Any) -> None:
    """Raise ValueError for tags, aliases, merge keys and deep nesting.

    PyYAML reads an empty text with the tag of a number as the first of its characters (IndexError)."""
    import yaml

    depth = 0
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent) or (
            isinstance(event, yaml.ScalarEvent) and event.value == "<<" and not event.style
        ):
            raise ValueError(f"it has an alias or a merge key in line {line}")
        if getattr(event, "tag", None) is not None:
            raise ValueError(f"it has a tag in line {line}")
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels in line {line}")
