"""Evidence that was written before, read from its file.

Evidence of an image of the project is in the part of the store that this user alone writes (`Store.own`): in a store
that a group shares, another member could state anything. Evidence of other files (``verify FILE``) is in verified/ of
that part. A JSON file beside an image is a statement of its author, and is not evidence.

A link, and what is not evidence, reads as none. The results are texts to print; `artifact` is compared with the sha256
of the image.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envbuild.core.console import Reporter
from envbuild.core.digest import reported_digest
from envbuild.core.ownership import is_own_file
from envbuild.core.store.json_files import read_json
from envbuild.core.store.records import is_unchanged
from envbuild.core.store.store import Store, write_json
from envbuild.export.built_image import ImageRecord
from envbuild.lock.model import Lock, lock_digest
from envbuild.verify.evidence import SCHEMA, SUFFIX, Evidence, evidence_document, write_evidence
from envbuild.verify.results import AuditResult, Status
from envbuild.verify.tiers import TIERS

VERIFIED = "verified"


def read_evidence(path: Path) -> Evidence | None:
    """Return the evidence in a file; None if the file is missing or is not evidence of this schema."""
    return parse_evidence(read_json(path))


def read_own_evidence(path: Path) -> Evidence | None:
    """Return the evidence in a file that no user but this one and root can have written; None for any other."""
    return read_evidence(path) if is_own_file(path) else None


def write_own_evidence(evidence: Evidence, store: Store) -> Path:
    """Write evidence into the part of the store that this user alone writes; return its path."""
    return write_evidence(evidence, store.own_folder("artifacts"))


def write_file_evidence(evidence: Evidence, store: Store) -> Path:
    """Write evidence of a file that was not built in this store; return its path."""
    path = store.own_folder(VERIFIED) / f"{_stem(evidence)}-{evidence.artifact.removeprefix('sha256:')[:12]}.json"
    write_json(path, evidence_document(evidence))
    return path


def find_file_evidence(
    file: Path, name: str, lock: Lock, store: Store, reporter: Reporter
) -> tuple[Evidence | None, str]:
    """Return the evidence that this user has of the bytes of a squashfs file with a lock inside, and their sha256: it
    is computed only where there is evidence of that lock. name: what the user calls the file."""
    stem = _stem(Evidence(lock.image, lock_digest(lock), (), ""))
    places = [store.own / "artifacts" / f"{stem}{SUFFIX}", *sorted((store.own / VERIFIED).glob(f"{stem}-*.json"))]
    read = filter(None, map(read_own_evidence, places))
    known = [evidence for evidence in read if evidence.lock == lock_digest(lock)]
    if not known:
        return None, ""
    sha256 = reported_digest(file, reporter, name=name)
    return next((evidence for evidence in known if evidence.artifact == f"sha256:{sha256}"), None), sha256


def _stem(evidence: Evidence) -> str:
    return evidence.file_name.removesuffix(SUFFIX)


def find_evidence(made: ImageRecord, lock: Lock, reporter: Reporter) -> tuple[Evidence | None, str]:
    """Return the evidence that this user has of the file of an image; if there is none, None and the reason.

    The file of another member of a group is read for its sha256.
    """
    found = read_own_evidence(Path(made.evidence)) if made.evidence else None
    if found is None:
        return None, "this user has no evidence of the file"
    if (found.artifact, found.lock) != (f"sha256:{made.sha256}", lock_digest(lock)):
        return None, "the evidence is of other bytes"
    same = is_unchanged(Path(made.artifact), made.sha256, reporter)
    return (found, "") if same else (None, "another user replaced the file")


def parse_evidence(value: Any) -> Evidence | None:
    """Return the evidence in a JSON value that `evidence_document` made; None for any other value."""
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        return None
    try:
        found = Evidence(
            image=_text(value["image"]),
            lock=_text(value["lock"]),
            layers=_texts(value["layers"]),
            artifact=_text(value["artifact"]),
            messages=_texts(value["messages"]),
            results=tuple(map(_result, _list(value["results"]))),
            box={_text(name): state is True for name, state in _mapping(value["box"]).items()},
            checked=_texts(value["checked"]),
            inspected_by=_text(value["inspected_by"]),
            sources={_text(name): _text(item) for name, item in _mapping(value["sources"]).items()},
            seconds={_text(name): float(item) for name, item in _mapping(value["seconds"]).items()},
            dev={_text(name): _text(item) for name, item in _mapping(value.get("dev", {})).items()},
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return found


def _result(value: Any) -> AuditResult:
    """Return one result. Raises KeyError, TypeError or ValueError for another value."""
    row = _mapping(value)
    tier = _text(row["tier"])
    if tier not in TIERS:
        raise ValueError(tier)
    detail, hint = (_text(row.get(key, "")) for key in ("detail", "hint"))
    return AuditResult(_text(row["name"]), Status(_text(row["status"])), detail, tier, hint)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(value)
    return value


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(_text, _list(value)))


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(value)
    return value
