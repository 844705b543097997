"""Results of locking that the store keeps, so that the same request is not resolved twice.

One file for each result: ``resolved/<key>.json``, an object with a checksum. The key is the sha256 of envbuild's own
code, the kind of the result, and all that the result depends on, as its writer states it: the request, and the state of
the archive or what represents that. A result is never judged by its age or by the time of a file. Each kind states its
key in the module that writes it (`envbuild.lock.debian.stored_lock`, `envbuild.lock.python.kept_units`,
`envbuild.lock.lock_record`, `envbuild.lock.dry_run`).

The folder is of this user alone, also in the store of a group: a result becomes part of a lock, and what another user
wrote must not. A file that is damaged, of another user, a link or of another format is read as absent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild.core.code_digest import code_digest
from envbuild.core.file_status import file_status
from envbuild.core.ownership import own_users
from envbuild.core.store.json_files import SEAL, checksum, read_json, write_sealed
from envbuild.core.store.store import Store

FOLDER = "resolved"


@dataclass(frozen=True, slots=True)
class StoredResults:
    """The results of locking in a store."""

    store: Store

    def path(self, kind: str, key: object) -> Path:
        """Return the file of a result. `key`: plain data, all that the result depends on beside envbuild's code."""
        text = json.dumps([code_digest(), kind, key], sort_keys=True, separators=(",", ":"))
        return self.store.own / FOLDER / f"{hashlib.sha256(text.encode()).hexdigest()}.json"

    def read(self, kind: str, key: object) -> Any:
        """Return a stored result; None if there is none."""
        path = self.path(kind, key)
        try:
            if file_status(path, follow=False).owner not in own_users():
                return None
            value = read_json(path)
        except OSError:
            return None
        sealed = isinstance(value, dict) and value.pop(SEAL, "") == checksum(value)
        return value.get("result") if sealed else None

    def write(self, kind: str, key: object, result: object) -> None:
        """Store a result of plain data. A store that cannot be written does not fail the command."""
        with contextlib.suppress(OSError):
            self.store.own_folder(FOLDER)
            write_sealed(self.path(kind, key), {"result": result})

    def forget(self, kind: str, key: object) -> None:
        """Remove a stored result."""
        with contextlib.suppress(OSError):
            self.path(kind, key).unlink()
