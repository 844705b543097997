"""The answer of a rebuild: a document that states what was built, from what, and which parts have the same bytes.

It has no time and no name of a machine: two builders with the same result write the same document but for `builder`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from envbuild import __version__
from envbuild.build.engines.base import BuildResult
from envbuild.build.plan.units import Plan
from envbuild.core.code_digest import code_digest
from envbuild.core.text import counted, printable
from envbuild.lock.model import Lock, lock_digest
from envbuild.publish.rebuild.claim import Claim
from envbuild.publish.rebuild.comparison import Difference, Part

KIND = "envbuild.rebuild.v1"
NOT_WRITTEN = "not written, because other parts differ"


def rebuild_document(
    claim: Claim, lock: Lock, plan: Plan, built: BuildResult, parts: Sequence[Part], first: Difference | None
) -> dict[str, Any]:
    """Return the document. `parts`: all that were compared; `first`: the first file that differs, if one part does."""
    return {
        "kind": KIND,
        "subject": {
            "name": claim.name,
            "image": lock.image,
            "digest": claim.digest,
            "squashfs": f"sha256:{claim.squashfs}",
            "lock": lock_digest(lock),
            "spec": f"sha256:{hashlib.sha256(claim.spec.encode()).hexdigest()}" if claim.spec else "",
        },
        "builder": {
            "envbuild": __version__,
            "code": f"sha256:{code_digest()}",
            "engine": built.engine,
            "architecture": plan.config.architecture,
        },
        "units": {unit: key for unit, key in plan.keys().items() if unit in built.built},
        "parts": [{**asdict(part), "equal": part.equal} for part in parts],
        "equal": all(part.equal for part in parts),
        "first_difference": asdict(first) if first else None,
        "summary": str(first) if first else "",
    }


def rebuild_text(data: Mapping[str, Any]) -> str:
    """Return the answer as text."""
    subject, parts = data["subject"], data["parts"]
    layers = [part for part in parts if part["kind"] == "layer"]
    equal = sum(part["equal"] for part in layers)
    lines = [
        f"{printable(subject['image'])}: {counted(len(data['units']), 'unit')} built from its lock "
        f"(engine {data['builder']['engine']}), none taken from a store or a cache",
        f"  layers:   {equal} of {len(layers)} equal",
    ]
    for part in (part for part in parts if part["kind"] != "layer"):
        state = f"equal, {part['claimed']}" if part["equal"] else f"different, {part['rebuilt'] or NOT_WRITTEN}"
        lines.append(f"  {part['kind'] + ':':<9} {state}")
    last = (
        "equal: image and squashfs file have the same bytes"
        if data["equal"]
        else f"DIFFERENT: {printable(data['summary'])}"
    )
    return "\n".join([*lines, last])
