"""The keys that sign a vendor's package repository: identified by their fingerprint, downloaded from the repository.

The recipe contains the fingerprint, so that the site that serves the repository does not decide which key is trusted. A
site that signs its own copy names its keys itself (``keyrings`` in site.yaml); those are used as they are.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from envbuild.core.errors import InputError
from envbuild.core.programs import run_program
from envbuild.core.store.store import write_atomic
from envbuild.lock.missing_inputs import describe_misses
from envbuild.net.failures import NotFoundError, UnreachableError
from envbuild.net.miss import Miss
from envbuild.net.site import mirror_line, mirrors_setting
from envbuild.net.transport import Transport
from envbuild.net.urls import join, redact
from envbuild.spec.recipe import AptRepository

FRESH = 3600  # seconds for which package lists and keys are used again


def is_recent(path: Path) -> bool:
    """Return whether `path` was written within the last hour."""
    return path.exists() and 0 <= time.time() - path.stat().st_mtime < FRESH


def keyring_line(origin: str) -> str:
    """Return the setting of ``site.yaml`` with which `origin` (``debian:trixie/main``, ``apt:nvidia-cuda/ubuntu2204``)
    is trusted for the keys in a file."""
    kind = origin.partition(":")[0]
    prefix = f'"{origin}"' if kind == "apt" else kind
    return f"keyrings: {{{prefix}: FILE}}"


def repository_key(
    repository: AptRepository, roots: Iterable[str], transport: Transport, folder: Path, *, refresh: bool = False
) -> Path:
    """Return a file in `folder` with the key of `repository` alone, downloaded from the first of `roots` that has its
    `key_file`.

    Raises InputError: it is not available, it is another key, or gpg is not installed.
    """
    wanted = re.sub(r"\s", "", repository.key).upper()
    path = folder / f"{wanted}.gpg"
    if is_recent(path) and not refresh:
        return path
    if not repository.key_file:
        raise InputError(
            f"the package repository {repository.origin} offers no key, and its recipe names no place for one",
            hint=f"write into site.yaml:  {keyring_line(repository.origin)}",
        )
    place, content = _download_key(repository, roots, transport)
    if not shutil.which("gpg"):
        raise InputError("gpg is not installed; it reads the keys of package repositories", "sudo apt install gpg")
    with tempfile.TemporaryDirectory(prefix="gpg") as home:
        candidate = Path(home) / "key"
        candidate.write_bytes(content)
        listing = _run_gpg(home, "--with-colons", "--import-options", "show-only", "--import", str(candidate)).decode()
        found = re.findall(r"^pub:.*\n(?:(?!pub:|fpr:).*\n)*fpr:{9}([0-9A-F]+):", listing, re.MULTILINE)
        if wanted not in found:
            keys_found = f"has the key {', '.join(found)}" if found else "contains no OpenPGP key"
            raise InputError(
                f"the key of the package repository {repository.origin} is not the expected one: {redact(place)} "
                f"{keys_found}, and the recipe names {wanted}",
                hint="correct the recipe where the vendor changed its key; for a copy that another key signs, write "
                f"into site.yaml:  {keyring_line(repository.origin)}",
            )
        _run_gpg(home, "--import", str(candidate))
        folder.mkdir(parents=True, exist_ok=True)
        key = _run_gpg(home, "--export", wanted)
    write_atomic(path, lambda file: file.write(key))
    return path


def copy_keys(keyring: Path, folder: Path) -> Path:
    """Return a copy of a site's file of keys in `folder`, named by its content."""
    content = keyring.read_bytes()
    # apt takes the file for text or for binary keys by the ending of its name.
    path = folder / f"site-{hashlib.sha256(content).hexdigest()}{'.asc' if keyring.suffix == '.asc' else '.gpg'}"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(path, lambda file: file.write(content))
    return path


def _download_key(repository: AptRepository, roots: Iterable[str], transport: Transport) -> tuple[str, bytes]:
    misses: list[Miss] = []
    for root in roots:
        place = join(root, repository.key_file)
        try:
            return place, transport.read(place, limit=transport.limits.key).content
        except (NotFoundError, UnreachableError) as error:
            misses.append(error.miss(redact(place)))
    line = mirror_line(repository.origin)
    raise InputError(
        f"the key of the package repository {repository.origin} is not available; {describe_misses(misses)}",
        hint=f"write into site.yaml:  {mirrors_setting(line)}  or  {keyring_line(repository.origin)}",
        mirror_lines=(line,),
    )


def _run_gpg(home: str, *arguments: str) -> bytes:
    """Run gpg with a folder of its own and return its standard output; an invalid key is missing in its list."""
    command = ["gpg", "--homedir", home, "--batch", "--quiet", "--no-autostart", "--trust-model", "always"]
    command += ["--no-default-keyring", "--keyring", f"{home}/keys.gpg"]
    output: bytes = run_program([*command, *arguments]).stdout
    return output
