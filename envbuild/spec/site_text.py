"""The text of a file `site.yaml` as one of envbuild, or of another program that has files of this name.

It may have logins and a policy of signatures, so that one which cannot be read is taken for one of envbuild: the error
is reported where it is read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

PLAIN = re.compile(rb"^schema:", re.MULTILINE)
# Linear for any text: other users can put a file into a folder above the current one.
LOOSE = re.compile(rb"(?:^|[{,\n\r])[^\w\n\r#-]{0,16}schema[\"']?\s{0,16}:\s{0,16}[\"']?1\b")
MOST = 1 << 16  # bytes that are parsed


def is_site(content: bytes) -> bool:
    """Return whether the text of a file has the key ``schema`` on top, in any form of writing; or what may be this key
    of a site file, and is not YAML or not UTF-8."""
    if PLAIN.search(content):  # of nearly every site file
        return True
    content = content.replace(b"\0", b"")  # UTF-16 has them
    if b"schema" not in content and b"\\" not in content:  # YAML can write each letter as an escape
        return False
    import yaml

    try:
        if "schema" in top_keys(content[:MOST].decode("utf-8-sig")):
            return True
        unknown = len(content) > MOST
    except (yaml.YAMLError, UnicodeDecodeError):
        unknown = True
    return unknown and LOOSE.search(content) is not None


def top_keys(text: str) -> Iterator[str]:
    """Yield the keys of the mapping that a text in YAML is; none of another text. Also of one with aliases and tags, as
    other programs have them. Raises YAMLError."""
    import yaml

    from envbuild.core.yaml_parser import LOADER

    depth = nodes = 0
    event: Any  # events of the parser have a value only if they are scalars
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.NodeEvent):
            if depth == 0 and not isinstance(event, yaml.MappingStartEvent):
                return
            if depth == 1:
                nodes += 1
                if nodes % 2 and isinstance(event, yaml.ScalarEvent):
                    yield event.value
            depth += isinstance(event, yaml.CollectionStartEvent)
