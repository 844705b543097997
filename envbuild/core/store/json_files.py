"""JSON files of the store: written whole or not at all, and read by processes that may find anything in them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from envbuild.core.json_text import record_value
from envbuild.core.regular_file import NotRegularError, TooLargeError, read_bounded

SEAL = "checksum"


MAX_RECORD = 16 << 20  # bytes: a record of a layer lists folders


def read_json(path: Path, *, follow: bool = False) -> Any:
    """Return the value of a JSON file; None if it is missing, unreadable, truncated or not JSON. Another user may have
    put a FIFO, a device or a link in its place: None, too. `follow`: follow links."""
    try:
        return record_value(read_bounded(path, MAX_RECORD, follow=follow))
    except (FileNotFoundError, PermissionError, NotRegularError, TooLargeError, ValueError):
        return None


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    write_atomic(path, lambda file: file.write((json.dumps(value, sort_keys=True, indent=1) + "\n").encode()))


def write_sealed(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object with a checksum of its other keys."""
    write_json(path, {**value, SEAL: checksum(value)})


def read_sealed(path: Path) -> Any:
    """Return the value of `write_sealed`; None if it is missing, or not what was written.

    An object without a checksum is of an envbuild that wrote none, and returned as it is.
    """
    value = read_json(path)
    if isinstance(value, dict) and SEAL in value:
        seal = value.pop(SEAL)
        return value if seal == checksum(value) else None
    return value


def checksum(value: Mapping[str, Any]) -> str:
    """Return the checksum of a JSON object."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def write_atomic(path: Path, write: Callable[[IO[bytes]], object], mode: int = 0o644, *, durable: bool = True) -> None:
    """Write a file beside `path` and rename it into place. `durable`: flush it to disk, against a power cut.

    Until it is complete only its owner can read it.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        # By the descriptor: where a group may write the folder, the name may be another file by now.
        with open(temporary, "wb", opener=_open_private) as file:
            write(file)
            file.flush()
            if durable:
                os.fsync(file.fileno())
            os.fchmod(file.fileno(), mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def new_file_mode() -> int:
    """Return the mode of a new file of the user, by the umask."""
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def write_private(path: Path, text: str) -> None:
    """Write a file that at no moment another user can read: it may contain passwords."""
    write_atomic(path, lambda file: file.write(text.encode()), 0o600, durable=False)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL, 0o600)


def stamp(path: Path) -> list[int]:
    """Return size and time of a file: they change with its content."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]
