"""Keys of images: digests of all that decides an image's content and what is checked in it, so that an unchanged image
is recognized without a store."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from envbuild.core.errors import SpecError
from envbuild.lock.lock_record import decisive_parts
from envbuild.lock.model import Lock
from envbuild.lock.request import lock_request
from envbuild.lock.update import current_lock, draft_lock
from envbuild.spec.resolve import Resolution
from envbuild.spec.workspace import Workspace

LOCK, START, CHECKS = "lock", "start", "checks"


def image_keys(resolution: Resolution, state: str, workspace: Workspace) -> dict[str, str]:
    """Return part of the image → sha256 (hex) of what decides it.

    `state`: that of its lock (`envbuild.cli.image_list.lock_state`). With a current lock the parts are its units, their
    names with the prefix ``unit ``; `START`, the configuration of the image; and `CHECKS`, what verify runs and
    expects. Else `LOCK`: what a lock is requested for, and the units and the configuration of a draft; of recipes that
    need a lock the content of their files. Raises SpecError of a recipe.
    """
    if state == "current":
        lock = current_lock(resolution, workspace)
        return {**plan_parts(resolution, lock), CHECKS: value_digest(checks(resolution, lock))}
    try:
        parts = plan_parts(resolution, draft_lock(resolution))
    except SpecError:  # of a recipe that needs what a lock has
        digest = hashlib.sha256()
        for part in decisive_parts(resolution, workspace):
            digest.update(hashlib.sha256(part if isinstance(part, bytes) else part.encode()).digest())
        parts = {"files": digest.hexdigest()}
    return {LOCK: value_digest([state, lock_request(resolution).digest(), parts])}


def plan_parts(resolution: Resolution, lock: Lock) -> dict[str, str]:
    """Return the parts of an image that a plan decides."""
    from envbuild.build.plan.planner import make_plan

    plan = make_plan(resolution, lock)
    units = {f"unit {name}": key for name, key in plan.keys().items()}
    return {**units, START: value_digest(dataclasses.asdict(plan.config))}


def checks(resolution: Resolution, lock: Lock) -> list[Any]:
    """Return what the recipes check in the image, and what they expect in it."""
    from envbuild.verify.expectations import expected_contents
    from envbuild.verify.image_checks import image_checks

    found = [dataclasses.asdict(check) for _, check in image_checks(resolution, lock)]
    return [found, dataclasses.asdict(expected_contents(resolution, lock))]


def value_digest(value: Any) -> str:
    """Return the sha256 (hex) of a value of plain data, in any order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def image_key(parts: Mapping[str, str]) -> str:
    """Return the key of an image: one digest of all its parts."""
    return f"sha256:{value_digest(dict(parts))}"
