"""The text of a file `site.yaml` as one of envbuild, or of another program that has files of this name.

It may have logins and a policy of signatures, so that one which cannot be read is taken for one of envbuild: the error
is reported where it is read."""

from __future__ import annotations

import re

from envbuild.core.errors import SpecError

PLAIN = re.compile(rb"^schema:", re.MULTILINE)
LOOSE = re.compile(rb"(?:^|[{,\n\r])[^\w\n\r-]*schema[\"']?\s*:\s*[\"']?1\b")
WORD = "schema"


def is_site(content: bytes) -> bool:
    """Return whether the text of a file has the key ``schema`` on top, in any form of writing; or what may be this key
    of a site file, and is not YAML or not UTF-8."""
    if PLAIN.search(content):  # of nearly every site file
        return True
    content = content.replace(b"\0", b"")  # UTF-16 has them
    if WORD.encode() not in content:
        return False
    from envbuild.core.yaml_parser import parse
    from envbuild.core.yaml_text import decode

    try:
        return WORD in parse(decode(content, WORD), WORD, []).entries
    except SpecError:
        return LOOSE.search(content) is not None
