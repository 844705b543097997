"""The documents that an image was published with, compared with those inside its squashfs file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from envbuild.core.errors import LockError, VerifyError
from envbuild.lock.lockfile import parse_lock
from envbuild.lock.model import lock_digest
from envbuild.publish.artifact_types import LOCK, RESOLUTION, SPEC
from envbuild.publish.find_squashfs import PublishedSquashfs
from envbuild.publish.published_image import read_text
from envbuild.publish.published_texts import is_own_spec
from envbuild.publish.remote_image import RemoteImage
from envbuild.publish.signed_documents import value_at
from envbuild.verify.contents.metadata import read_image_texts

HINT = "publish the image again: envbuild publish NAME --to PLACE --move"


def check_documents(image: RemoteImage, squashfs: PublishedSquashfs, file: Path, provenance: Any) -> None:
    """Raise VerifyError if the spec, the lock or the resolution that an image was published with, which `show` and
    `diff` print, is another one than in its file, or the lock another one than in its provenance."""
    spec, lock, resolution = (read_text(image, squashfs, kind) for kind in (SPEC, LOCK, RESOLUTION))
    within = read_image_texts(file, "spec.yaml", "lock.yaml", "resolution.json")
    found = {
        "spec": bool(spec) and not is_own_spec(spec, within.get("spec.yaml", "")),
        "lock": bool(lock) and digest_of(lock, file) != digest_of(within.get("lock.yaml", ""), file),
        "resolution": bool(resolution) and resolution != within.get("resolution.json"),
    }
    for name, differs in found.items():
        if differs:
            raise VerifyError(f"the {name} that {image.name} was published with is not that of its file", HINT)
    stated = value_at(provenance, "buildDefinition", "externalParameters", "lock", "digest", "sha256")
    if lock and stated and stated != hashlib.sha256(lock.encode()).hexdigest():
        raise VerifyError(f"the lock that {image.name} was published with is not that of its provenance", HINT)


def digest_of(text: str, file: Path) -> str:
    """Return the digest of a lock; its text if it cannot be read."""
    try:
        return lock_digest(parse_lock(text, file))
    except LockError:
        return text
