"""The evidence of one run: a JSON document that ends with a checksum of all its other keys."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .model import FABRIC, GPU, Job, Outcome, outcome_data, read_outcome

SCHEMA = 1
KIND = "gpu-evidence"
LARGEST = 4 << 20  # bytes
TEXTS = ("kind", "program", "image", "lock", "target", "tier", "date")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")  # of an image and a target: parts of paths
LOCK = re.compile(r"sha256:[0-9a-f]{64}")
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


class RefusedError(Exception):
    """The reason why a file is not evidence."""


def evidence_document(
    job: Job, outcomes: Sequence[Outcome], date: str, program: str, place: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the document, with its checksum. `place`: the node; `date`: of the end, UTC."""
    value = {
        "schema": SCHEMA,
        "kind": KIND,
        "program": program,
        "image": job.image,
        "lock": job.lock,
        "target": job.target,
        "tier": job.tier,
        "date": date,
        "place": dict(place),
        "results": [outcome_data(outcome) for outcome in outcomes],
    }
    return {**value, "checksum": checksum(value)}


def checksum(value: Mapping[str, Any]) -> str:
    """Return the checksum of a document."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def read_document(text: str) -> tuple[dict[str, Any], tuple[Outcome, ...]]:
    """Return a document and its results. Raises RefusedError with the reason."""
    if len(text) > LARGEST:
        raise RefusedError(f"it is larger than {LARGEST >> 20} MiB")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise RefusedError("it is truncated, or not JSON") from None
    if not isinstance(value, dict) or value.get("kind") != KIND:
        raise RefusedError("it is not evidence of GPU checks")
    if value.get("schema") != SCHEMA:
        raise RefusedError(f"its format is {str(value.get('schema'))[:20]}, and {SCHEMA} is known")
    stated = value.pop("checksum", "")
    try:
        computed = checksum(value)
    except RecursionError:
        raise RefusedError("its values are nested too deeply") from None
    if stated != computed:
        raise RefusedError("its checksum differs: it was changed or damaged after it was written")
    if not all(isinstance(value.get(key), str) for key in TEXTS) or not DATE.fullmatch(value["date"]):
        raise RefusedError("a key is missing or has another kind of value")
    names = all(NAME.fullmatch(value[key]) for key in ("image", "target"))
    if not names or not LOCK.fullmatch(value["lock"]) or value["tier"] not in (GPU, FABRIC):
        raise RefusedError("its image, lock, target or tier is not one")
    results = value.get("results")
    if not isinstance(results, list) or not results or not is_place(value.get("place")):
        raise RefusedError("it contains no results, or no place where they were measured")
    try:
        outcomes = tuple(read_outcome(item) for item in results)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise RefusedError(f"a result is not well-formed: {str(error)[:100]}") from None
    if {outcome.tier for outcome in outcomes} != {value["tier"]}:
        raise RefusedError(f"it is of tier {value['tier']}, and has results of another one")
    return {**value, "checksum": stated}, outcomes


def is_place(value: Any) -> bool:
    """Return whether a value is the node as a document describes it: names of its GPUs, version of the driver."""
    if not isinstance(value, dict) or not isinstance(value.get("gpus", []), list):
        return False
    return all(isinstance(text, str) for text in (*value.get("gpus", []), value.get("driver", "")))
