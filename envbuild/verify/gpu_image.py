"""An image for the tiers gpu and fabric: the digest of its lock, and the checks that its recipes declare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbuild.core.errors import VerifyError
from envbuild.core.shell import shell_word
from envbuild.lock.lockfile import parse_lock
from envbuild.lock.model import lock_digest
from envbuild.verify.contents.metadata import parse_object, read_image_texts
from envbuild.verify.contents.squashfs_path import find_squashfs_file
from envbuild.verify.tiers import MEASURED

if TYPE_CHECKING:
    from envbuild.spec.workspace import Workspace


@dataclass(frozen=True, slots=True)
class GpuImage:
    """`lock`: its digest. `target`: that it was built for. `checks`: of the tiers gpu and fabric, each with name,
    command, expect and tier."""

    name: str
    lock: str
    target: str
    checks: tuple[Mapping[str, str], ...] = ()


def read_gpu_image(name: str, workspace: Workspace) -> GpuImage:
    """Return an image of the project, or of a squashfs file, whose recipes' checks are not known.

    Raises SpecError, LockError, and VerifyError for a file without a lock.
    """
    if file := find_squashfs_file(name):
        texts = read_image_texts(file, "lock.yaml", "resolution.json")
        if "lock.yaml" not in texts:
            message = "the file contains no lock: envbuild did not build this image"
            raise VerifyError(message, hint=f"envbuild show {shell_word(file)}", where=str(file))
        lock = parse_lock(texts["lock.yaml"], file)
        target = str(parse_object(texts.get("resolution.json", "")).get("target", ""))
        return GpuImage(lock.image, lock_digest(lock), target)
    from envbuild.lock.resolve import resolve_image
    from envbuild.lock.update import current_lock
    from envbuild.verify.image_checks import image_checks

    resolution = resolve_image(name, workspace)
    lock = current_lock(resolution, workspace)
    checks = [check for _, check in image_checks(resolution, lock) if check.tier in MEASURED]
    values = [
        {"name": check.name, "command": check.command, "expect": check.expect, "tier": check.tier} for check in checks
    ]
    return GpuImage(lock.image, lock_digest(lock), resolution.target.name, tuple(values))
