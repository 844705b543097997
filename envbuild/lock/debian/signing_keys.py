"""The keys that sign a vendor's package repository: identified by their fingerprint, downloaded from the repository or
from another address of the vendor (`envbuild.net.public_homes`).

The recipe contains the fingerprint, so that the site that serves the repository does not decide which key is trusted. A
site that signs its own copy names its keys itself (``keyrings`` in site.yaml); those are used as they are.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO

from envbuild.core.errors import InputError
from envbuild.core.store.store import write_atomic
from envbuild.lock.debian.gpg import private_gpg
from envbuild.lock.missing_inputs import describe_misses
from envbuild.net.failures import NotFoundError, UnreachableError
from envbuild.net.miss import Miss
from envbuild.net.public_homes import find_homes
from envbuild.net.site import mirror_line, mirrors_setting
from envbuild.net.supply import Supply, SupplyKind
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


def key_places(repository: AptRepository, supply: Supply) -> list[str]:
    """Return the places at which the key of a repository may be: the file that its recipe names, then those that its
    public home names. Addresses elsewhere are used only if the repository itself comes from its public home."""
    roots = [join(place, supply.rest) if supply.rest else place for place in supply.places]
    known = [key for home in find_homes(repository.origin) for key in home.signing_keys(repository.origin)]
    files = [repository.key_file, *(file for key in known for file in key.files)]
    public = supply.by is SupplyKind.PUBLIC
    below = [join(root, file) for root in roots for file in files if file and "://" not in file]
    return list(dict.fromkeys([*below, *(file for file in files if public and "://" in file)]))


def repository_key(
    repository: AptRepository, places: Sequence[str], transport: Transport, folder: Path, *, refresh: bool = False
) -> Path:
    """Return a file in `folder` with the key of `repository` alone, from the first of `places` that has it.

    Raises InputError: it is not available, every place has another key, or gpg is not installed.
    """
    wanted = re.sub(r"\s", "", repository.key).upper()
    path = folder / f"{wanted}.gpg"
    if is_recent(path) and not refresh:
        return path
    if not places:
        raise InputError(
            f"the package repository {repository.origin} offers no key, and its recipe names no place for one",
            hint=f"write into site.yaml:  {keyring_line(repository.origin)}",
        )
    if not shutil.which("gpg"):
        raise InputError("gpg is not installed; it reads the keys of package repositories", "sudo apt install gpg")
    misses: list[Miss] = []
    others: dict[str, list[str]] = {}  # place → fingerprints of other keys
    for place in places:
        try:
            content = transport.read(place, limit=transport.limits.key).content
            key, others[redact(place)] = extract_key(content, wanted)
        except (NotFoundError, UnreachableError) as error:
            misses.append(error.miss(redact(place)))
            continue
        if key:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomic(path, partial(_write, key))
            return path
    raise _wrong_key_error(repository, wanted, others) if others else _no_key_error(repository, misses)


def extract_key(content: bytes, fingerprint: str) -> tuple[bytes, list[str]]:
    """Return the key with `fingerprint` alone, as binary packets (empty: `content` does not have it), and the
    fingerprints of all keys in `content`. Raises RefusedError after the time limit of gpg."""
    with private_gpg() as gpg:
        candidate = gpg.home / "key"
        candidate.write_bytes(content)
        found = gpg.primary_keys(candidate)
        if fingerprint not in found:
            return b"", found
        gpg.run("--import", str(candidate))
        # --export takes keys that have the fingerprint as a subkey, too, and an attacker can bind the vendor's public
        # key to a key of his own as one: other keys are removed first, and the result is read again.
        for other in set(found) - {fingerprint}:
            gpg.run("--yes", "--delete-keys", other)
        candidate.write_bytes(gpg.run("--export", fingerprint))
        return (candidate.read_bytes() if gpg.primary_keys(candidate) == [fingerprint] else b""), found


def is_bound_by_weak_hash(key: Path) -> bool:
    """Return whether a key binds its identity or a subkey with MD5, SHA-1 or RIPEMD-160 (RFC 9580, 5.2.1 and 9.5).

    Raises RefusedError after the time limit of gpg."""
    with private_gpg() as gpg:
        packets = gpg.run("--list-packets", str(key)).decode(errors="replace")
    own = re.search(r"^:public key packet:\n(?:\t.*\n)*?\tkeyid: ([0-9A-F]+)", packets, re.MULTILINE)
    bindings = rf"^:signature packet: .*keyid {own[1] if own else '-'}\n.*sigclass 0x1[01238]\n\tdigest algo (\d+),"
    return bool({"1", "2", "3"} & set(re.findall(bindings, packets, re.MULTILINE)))


def copy_keys(keyring: Path, folder: Path) -> Path:
    """Return a copy of a site's file of keys in `folder`, named by its content."""
    content = keyring.read_bytes()
    # apt takes the file for text or for binary keys by the ending of its name.
    path = folder / f"site-{hashlib.sha256(content).hexdigest()}{'.asc' if keyring.suffix == '.asc' else '.gpg'}"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(path, lambda file: file.write(content))
    return path


def _wrong_key_error(repository: AptRepository, wanted: str, others: Mapping[str, Sequence[str]]) -> InputError:
    listed = " and ".join(
        f"{place} has the key {', '.join(keys)}" if keys else f"{place} contains no OpenPGP key"
        for place, keys in others.items()
    )
    known = {key.fingerprint: key for home in find_homes(repository.origin) for key in home.keys}
    newer = next((known[key] for keys in others.values() for key in keys if key in known), None)
    hint = "correct the recipe where the vendor changed its key; "
    if newer:
        since = f" since {newer.since}" if newer.since else ""
        hint = f"the vendor signs with {newer.fingerprint}{since}: write it as the key of the layer; "
    return InputError(
        f"the key of the package repository {repository.origin} is not the expected one: {listed}, and the recipe "
        f"names {wanted}",
        hint=f"{hint}for a copy that another key signs, write into site.yaml:  {keyring_line(repository.origin)}",
    )


def _no_key_error(repository: AptRepository, misses: Sequence[Miss]) -> InputError:
    line = mirror_line(repository.origin)
    return InputError(
        f"the key of the package repository {repository.origin} is not available; {describe_misses(misses)}",
        hint=f"write into site.yaml:  {mirrors_setting(line)}  or  {keyring_line(repository.origin)}",
        mirror_lines=(line,),
    )


def _write(content: bytes, file: IO[bytes]) -> None:
    file.write(content)
