"""The passphrase of a private key: the variable that cosign reads, else what the user types."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.core.errors import SignatureError

if TYPE_CHECKING:
    from envbuild.core.signing.key_file import Signer

VARIABLE = "COSIGN_PASSWORD"


def open_signer(file: Path | None) -> Signer | None:
    """Return the private key in a file; None without one. Its passphrase is typed if no variable has it.

    Raises SignatureError.
    """
    if file is None:
        return None
    from envbuild.core.signing.key_file import read_signer

    return read_signer(file, lambda: ask_passphrase(file))


def ask_passphrase(path: Path) -> str:
    """Return the passphrase that opens the key `path`. Without the variable and a terminal it is empty: a key that was
    made without one needs none."""
    if VARIABLE in os.environ:
        return os.environ[VARIABLE]
    return getpass.getpass(f"passphrase of {path}: ") if sys.stdin.isatty() else ""


def new_passphrase(path: Path, *, empty: bool) -> str:
    """Return the passphrase for the new key `path`; empty: none is wanted. Raises SignatureError if there is none, or
    if the user types two different ones."""
    if empty:
        return ""
    typed = VARIABLE not in os.environ and sys.stdin.isatty()
    first = getpass.getpass(f"passphrase of the new key {path}: ") if typed else os.environ.get(VARIABLE, "")
    if not first:
        raise SignatureError(
            f"the key {path} would have no passphrase: everyone who reads the file could sign",
            hint=f"export {VARIABLE}, or accept that: --no-passphrase",
        )
    if typed and getpass.getpass("the same again: ") != first:
        raise SignatureError("the two passphrases differ", hint="run the command again")
    return first
