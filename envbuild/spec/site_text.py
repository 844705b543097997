"""The text of a file `site.yaml` as one of envbuild, or of another program that has files of this name.

It may have logins and a policy of signatures, so that one which cannot be read is taken for one of envbuild: the error
is reported where it is read."""

from __future__ import annotations

import re

from envbuild.core.errors import SpecError

PLAIN = re.compile(rb"^schema:", re.MULTILINE)
KEY = re.compile(rb"schema[\"']?\s{0,16}:")
# Linear for any text: other users can put a file into a folder above the current one.
LOOSE = re.compile(rb"(?:^|[{,\n\r])[^\w\n\r-]{0,16}schema[\"']?\s{0,16}:\s{0,16}[\"']?1\b")


def is_site(content: bytes) -> bool:
    """Return whether the text of a file has the key ``schema`` on top, in any form of writing; or what may be this key
    of a site file, and is not YAML or not UTF-8."""
    if PLAIN.search(content):  # of nearly every site file
        return True
    content = content.replace(b"\0", b"")  # UTF-16 has them
    if not KEY.search(content):
        return False
    from envbuild.core.yaml_parser import parse
    from envbuild.core.yaml_text import decode

    try:
        return "schema" in parse(decode(content, "site"), "site", []).entries
    except SpecError:
        return LOOSE.search(content) is not None
