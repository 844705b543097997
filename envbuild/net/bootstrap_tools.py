"""Debian's archive as debootstrap or mmdebstrap name it: on a machine whose apt has no Debian archive (Ubuntu, RHEL,
SLES), the installed program knows it. The programs are read, not run.

Formats: ``DEF_MIRROR="…/debian"`` in debootstrap (1.0.128), ``my $mirror = '…/debian';`` in mmdebstrap (1.3.5).
"""

from __future__ import annotations

import functools
import re
import shutil
from pathlib import Path
from urllib.parse import urlsplit

PROGRAMS = {
    "debootstrap": re.compile(r"^DEF_MIRROR=[\"']?(https?://[^\s\"']+/debian)/?[\"']?\s*$", re.MULTILINE),
    "mmdebstrap": re.compile(r"^[ \t]*my \$mirror[ \t]*=\s*'(https?://[^\s']+/debian)/?';", re.MULTILINE),
}
FOLDERS = "/usr/sbin:/usr/local/sbin:/sbin"  # debootstrap's; a plain user's PATH may lack them


@functools.cache
def archive_values() -> dict[str, str]:
    """Return ``archive``: the address of Debian's archive, and ``domain``: the one of its host; empty if neither
    program is installed."""
    for name, pattern in PROGRAMS.items():
        path = shutil.which(name) or shutil.which(name, path=FOLDERS)
        if path and (address := read_address(Path(path), pattern)):
            return {"archive": address, "domain": (urlsplit(address).hostname or "").partition(".")[2]}
    return {}


def read_address(program: Path, pattern: re.Pattern[str]) -> str:
    """Return the address that `pattern` finds in a program; empty if there is none."""
    try:
        text = program.read_text(errors="replace")
    except OSError:
        return ""
    found = pattern.search(text)
    return found[1] if found else ""
