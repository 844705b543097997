"""Checks of a vendor's package repository before apt reads it: whether the vendor has it for the distribution, and
which program can check its signature.

Debian 13's apt checks signatures with sqv, whose policy refuses identities bound by SHA-1 since February 2026, and with
them NVIDIA's key for most distributions (NVIDIA/cuda-repo-management#39). The key is pinned by its fingerprint, so this
binding proves nothing here: gpgv checks the signature instead, which `APT::Key::GPGVCommand` selects.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from envbuild.core.console import Reporter
from envbuild.core.errors import InputError
from envbuild.lock.debian.signing_keys import is_bound_by_weak_hash
from envbuild.net.failures import RefusedError
from envbuild.net.public_homes import find_homes
from envbuild.net.site import mirror_line, mirrors_setting
from envbuild.spec.recipe import AptRepository


def check_exists(repository: AptRepository) -> None:
    """Raise InputError for a folder or suite that a vendor's public home is known not to have."""
    for home in find_homes(repository.origin):
        folder = home.rest(repository.origin).partition("/")[0]
        for wanted, known in ((folder, home.folders), (repository.suite, home.suites)):
            if known and wanted not in known:
                line = mirror_line(repository.origin)
                raise InputError(
                    f"{home.vendor} has no package repository {repository.origin} for {wanted}; it has: "
                    f"{', '.join(known)}",
                    hint=f"use a base that is listed; for a copy that has {wanted}, write into site.yaml:  "
                    f"{mirrors_setting(line)}",
                    mirror_lines=(line,),
                )


def requires_gpgv(origin: str, keyring: Path, reporter: Reporter) -> bool:
    """Return whether gpgv must check the signature of a repository, because sqv, which apt would use, refuses its key.

    Report it. Raises InputError without gpgv, and for a key that gpg does not read in time.
    """
    try:
        if not shutil.which("sqv") or not is_bound_by_weak_hash(keyring):
            return False
    except RefusedError as error:
        raise InputError(f"the key of the package repository {origin} cannot be used: {error}") from None
    why = "sqv refuses its key, because SHA-1 binds its identity"
    if not shutil.which("gpgv"):
        raise InputError(f"the signature of {origin} cannot be checked: {why}", hint="sudo apt install gpgv")
    reporter.info(f"gpgv checks the signature of {origin}, with the key that the recipe names: {why}")
    return True
