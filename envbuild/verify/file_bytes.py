"""The check of a finished file: its bytes are those that were written, and remain so while it is verified."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from envbuild.core.errors import VerifyError
from envbuild.verify.results import AuditResult, Status

NAME = "bytes of the file"


def file_bytes_result(image: str, recorded: str, found: str) -> AuditResult:
    """Return the result of the comparison of two sha256: the recorded one of the file, and that of its bytes now."""
    if found == recorded:
        return AuditResult(NAME, Status.PASS, f"sha256 {recorded}")
    return AuditResult(
        NAME,
        Status.FAIL,
        f"the file is damaged: expected sha256 {recorded}, got {found}",
        hint=f"envbuild make {image} writes it again",
    )


def file_identity(path: Path) -> tuple[int, int, int, int]:
    """Return what changes with each write to a file, and with each exchange of it, also by the same file again: every
    change of its content, its names or its owner sets the time of its inode (inode(7))."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_ctime_ns, found.st_size


def raise_replaced(path: Path) -> NoReturn:
    """Raise the VerifyError of a file that is not the one that was digested."""
    raise VerifyError(
        "another process replaced or changed the file while it was verified",
        hint="run the command again, or with a store of your own: ENVBUILD_STORE=/a/folder/of/yours",
        where=str(path),
    )
