"""Blobs of a published image: small ones read at once, others fetched into the store."""

from __future__ import annotations

import contextlib
import hashlib

from envbuild.core.errors import EnvbuildError, InputError, VerifyError
from envbuild.net.arrival import Arrival
from envbuild.net.download import DownloadError, Transfer
from envbuild.net.failures import NotFoundError, UnreachableError
from envbuild.net.miss import Miss, MissKind
from envbuild.net.urls import redact
from envbuild.publish.remote_image import RemoteImage


def read_blob(image: RemoteImage, digest: str, size: int) -> bytes:
    """Return a small blob (hex). Raises InputError if no place provides it, VerifyError if one provided other
    content."""
    misses: list[Miss] = []
    for place in image.places(digest):
        try:
            content = image.transport.read(place, limit=size).content
        except (NotFoundError, UnreachableError) as error:
            misses.append(error.miss(redact(place)))
            continue
        found = hashlib.sha256(content).hexdigest()
        if found == digest:
            return content
        why = f"digest mismatch: expected sha256 {digest}, got {found}"
        misses.append(Miss(redact(place), MissKind.MISMATCH, why))
    raise blob_error(image, digest, misses)


def read_document(image: RemoteImage, transfer: Transfer, digest: str, size: int) -> bytes:
    """Return a document (hex) of the store, into which it is fetched first: processes that share a store fetch it once.

    Raises as `read_blob`, EngineError."""
    if not transfer.store.has_blob(digest, size):
        obtain(image, transfer, digest, size)
    with contextlib.suppress(InputError, OSError):  # damaged, or removed meanwhile
        return transfer.store.read_document(digest)
    return read_blob(image, digest, size)


def obtain(image: RemoteImage, transfer: Transfer, digest: str, size: int, arrival: Arrival | None = None) -> None:
    """Fetch a blob (hex) into the store, unless it has it. `arrival`: for the thread that uses its first bytes
    meanwhile. Raises as `read_blob`."""
    try:
        transfer.obtain(image.places(digest), digest, size, arrival=arrival)
    except DownloadError as error:
        raise blob_error(image, digest, list(error.misses)) from None


def blob_error(image: RemoteImage, digest: str, misses: list[Miss]) -> EnvbuildError:
    """Return the error for a blob that no place provides as its digest names it."""
    what = f"the blob sha256:{digest} of {image.name}"
    if any(miss.kind is MissKind.MISMATCH for miss in misses):
        tried = "".join(f"\n  {miss}" for miss in misses)
        # A registry that has a blob is sent none, also where its content was damaged.
        hint = "publish the image again; of a registry, its administrator deletes the blob first"
        return VerifyError(f"{what} is not what its digest names; tried:{tried}", hint=hint)
    return image.not_available(what, misses)
