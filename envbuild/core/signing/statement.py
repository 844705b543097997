"""Statements of in-toto about contents by their digest (in-toto/attestation, spec/v1/statement.md).

The same values result in the same bytes, so that a statement that is made twice has one digest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envbuild.core.json_text import canonical_json, json_value

STATEMENT = "https://in-toto.io/Statement/v1"
EARLIER = "https://in-toto.io/Statement/v0.1"  # what cosign writes for attestations; it has the same fields
PAYLOAD = "application/vnd.in-toto+json"
HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Subject:
    """A content that a statement is about: a name for users, and its sha256 (hex)."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that was read: the sha256 (hex) of its subjects, and its predicate with the type of that."""

    subjects: tuple[str, ...]
    kind: str
    predicate: Any


def encode_statement(subjects: Sequence[Subject], kind: str, predicate: Mapping[str, Any]) -> bytes:
    """Return the bytes of a statement; kind: the type of the predicate."""
    value = {
        "_type": STATEMENT,
        "subject": [{"name": item.name, "digest": {"sha256": item.sha256}} for item in subjects],
        "predicateType": kind,
        "predicate": dict(predicate),
    }
    return canonical_json(value)


def parse_statement(content: bytes) -> Statement:
    """Return a statement of a stranger. Raises ValueError for anything else."""
    value = json_value(content)
    if not isinstance(value, dict) or value.get("_type") not in (STATEMENT, EARLIER):
        raise ValueError("not a statement of in-toto")
    listed, kind = value.get("subject"), value.get("predicateType")
    if not isinstance(listed, list) or not isinstance(kind, str):
        raise ValueError("a statement without subject or predicateType")
    found = []
    for item in listed:
        digests = item.get("digest") if isinstance(item, dict) else None
        sha256 = digests.get("sha256") if isinstance(digests, dict) else None
        if isinstance(sha256, str) and HEX.fullmatch(sha256):
            found.append(sha256)
    return Statement(tuple(found), kind, value.get("predicate"))
