"""Shell commands that separate what the steps of a stage wrote, and removed, from what was in the same folder before.

A layer of the embedded engine holds what a step wrote by itself; a stage holds both. Times are not evidence across
steps: the storage driver vfs copies all files for each RUN, in any order. So each step lists the files before and after
itself, by inode and time of the last change of status (a copy may preserve the other time). The commands use files, not
pipes, whose failures /bin/sh does not see, and end names with NUL: a name may have a line break.
"""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from envbuild.build.steps import INPUTS

BEFORE, AFTER = f"{INPUTS}/before", f"{INPUTS}/after"
WRITTEN = f"{INPUTS}/written"  # a record of each file that a step wrote: "TIME INODE PATH"
FOUND = f"{INPUTS}/found"  # a record of what was in place before the first step: "TYPE PATH"
GONE = f"{INPUTS}/gone"  # the paths of FOUND that the steps removed, or replaced with something of another type
NEXT = " && \\\n    "


def note_written(command: str, folders: Sequence[str]) -> str:
    """Return a step's command, after which WRITTEN has what it wrote in `folders`, too."""
    return NEXT.join(
        (*_list_files(folders, BEFORE), f"({command})", *_list_files(folders, AFTER), _only_in(AFTER, BEFORE, WRITTEN))
    )


def remove_others(folders: Sequence[str]) -> str:
    """Return the command that leaves in `folders` what WRITTEN names, and no empty folder."""
    words = _words(folders)
    return NEXT.join(
        (
            f"cut -z -d ' ' -f 3- {WRITTEN} > {BEFORE}",
            f"sort -z -u -o {BEFORE} {BEFORE}",
            f"find {words} ! -type d -fprint0 {AFTER}",
            f"sort -z -o {AFTER} {AFTER}",
            _only_in(AFTER, BEFORE, f"{INPUTS}/others"),
            f"xargs -0 -r -a {INPUTS}/others rm -f --",
            f"find {words} -mindepth 1 -type d -empty -delete",
        )
    )


def note_found(folders: Sequence[str], to: str = "") -> str:
    """Return the command that records what is in `folders` (default: in FOUND); a folder may be missing."""
    to = to or FOUND
    listed = (f"if [ -e {quote(at)} ]; then find {quote(at)} -printf '%y %p\\0' >> {to}; fi" for at in folders)
    return NEXT.join((f": > {to}", *listed, f"sort -z -o {to} {to}"))


def note_gone(folders: Sequence[str]) -> str:
    """Return the command after the last step, after which GONE has what no longer exists. A COPY of the folder
    removes nothing of the other stage, where the same files may exist: of the base image, of Debian packages, of a unit
    with an inner folder."""
    missing = f"{INPUTS}/missing"
    return NEXT.join(
        (
            f": > {missing}",
            note_found(folders, AFTER),
            _only_in(FOUND, AFTER, missing),
            f"cut -z -d ' ' -f 2- {missing} > {GONE}",
        )
    )


def remove_gone() -> str:
    """Return the command that removes what GONE names."""
    return f"xargs -0 -r -a {GONE} rm -rf --"


def copy_attributes(source: str, folder: str) -> str:
    """Return the command that copies owner and mode of a folder to another one."""
    return f"chown --reference={quote(source)} {quote(folder)}{NEXT}chmod --reference={quote(source)} {quote(folder)}"


def _list_files(folders: Sequence[str], to: str) -> tuple[str, str]:
    return f"find {_words(folders)} ! -type d -fprintf {to} '%C@ %i %p\\0'", f"sort -z -o {to} {to}"


def _only_in(one: str, other: str, to: str) -> str:
    return f"comm -z -2 -3 {one} {other} >> {to}"


def _words(folders: Sequence[str]) -> str:
    return " ".join(map(quote, folders))
