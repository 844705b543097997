"""What has to be locked: a pure function of the resolution gives it, and its digest says whether a lock is still the
right one."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from envbuild.recipe import Archive


@dataclass(frozen=True, slots=True)
class UnitRequest:
    """Inputs that one unit asks for: Debian package names, Python requirements, sdists to compile, archives."""

    debian: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    sdists: tuple[str, ...] = ()
    archives: tuple[Archive, ...] = ()


@dataclass(frozen=True, slots=True)
class LockRequest:
    """All that a lock answers.

    `units` are in build order: ``base`` first, then ``debian`` (run-time packages), ``venv`` (all run-time Python
    requirements, resolved together), ``venv-core`` (the part of them that forms the first venv unit), then one
    ``build-NAME`` for each compiling recipe. The Debian packages of every unit but the base are resolved on top of the
    base's; those of build units too.
    """

    image: str
    base: str  # debian:13
    arch: str  # amd64 | arm64 (Debian's and OCI's words)
    python: str  # 3.13
    units: dict[str, UnitRequest]
    spec: dict[str, object]  # what else, when changed, must make the lock outdated (versions, waivers)

    def digest(self) -> str:
        """``sha256:<hex>`` of everything above."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
