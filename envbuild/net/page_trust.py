"""The files that a page of a package index may name, by where the page is from and who may write it."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from envbuild.core.file_status import file_status
from envbuild.core.ownership import find_intrusion, find_renamers, own_users
from envbuild.net.urls import local_path


class PageTrust:
    """A page at `url`: an address, or a path of this machine."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.path = local_path(url)

    def find_fault(self, url: str, sha256: str) -> str:
        """Return why the page may not name the file at `url` with that digest; empty if it may. Raises ValueError for a
        malformed address.

        A page of another machine must not name files of this one. Over https it names a file over http only with its
        digest, because any machine on the way could change it.
        """
        scheme = urlsplit(url).scheme
        if self.path is not None:
            named = local_path(url)
            if named and self.is_foreign and not _may_name(self.path, named):
                return "another user may write that page, and the file is not that user's"
        elif scheme not in ("https", "http"):
            return "only an index on this machine may name its files"
        elif scheme == "http" and self.url.startswith("https://") and not sha256:
            return "an index with https may name a file without https only with its sha256"
        return ""

    @cached_property
    def is_foreign(self) -> bool:
        """Return whether other users may write the page, or put another one in its place."""
        users, path = own_users(), str(self.path)
        return bool(find_intrusion(path, users) or next(find_renamers(path, users), None))


def _may_name(page: Path, file: Path) -> bool:
    """Return whether a page that other users may write may name a file: one beside it or below, or one of its owner.

    The content of another one, private to the caller, would get to where others read it, as with a link
    (`envbuild.core.judged_links`)."""
    if Path(os.path.normpath(file)).is_relative_to(os.path.normpath(page.parent)):
        return True
    try:
        owner = file_status(page).owner
        return owner not in own_users() and (not file.exists() or file_status(file).owner == owner)
    except OSError:  # the caller cannot read it either, or no file has such a name
        return False
