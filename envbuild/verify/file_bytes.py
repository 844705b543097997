"""The check of a finished file: its bytes are those that were written."""

from __future__ import annotations

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
