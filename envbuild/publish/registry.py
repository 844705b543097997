"""Publishing to a registry: blobs first, the manifest by its digest, the tag last, so that a tag never names a part."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from envbuild.core.byte_progress import count_bytes
from envbuild.core.console import Reporter
from envbuild.core.errors import InputError, PublishError
from envbuild.core.text import amount
from envbuild.net.failures import UnreachableError
from envbuild.net.miss import MissKind
from envbuild.net.registry.client import RegistryAddress, Repository
from envbuild.net.registry.media_types import OCI
from envbuild.net.registry.push import PARALLEL, Push
from envbuild.net.registry.reference import Reference
from envbuild.net.registry.referrers import list_referrers
from envbuild.net.registry.upload import FIRST_PAUSE, RegistryRefusal, send
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from envbuild.publish.image_parts import BlobContent, ImageParts
from envbuild.publish.platform_index import add_to_index, push_index, read_tag
from envbuild.publish.referrers import has_entry, push_artifact
from envbuild.publish.squashfs_artifact import Artifact


@dataclass(frozen=True, slots=True)
class Published:
    """A published image: its `reference` by tag and `digest` (``sha256:…``), the blobs that were there already
    (`present`) and that were sent, and the bytes that were sent."""

    reference: str
    digest: str
    present: int
    sent: int
    sent_bytes: int


def open_repository(reference: Reference, site: Site) -> Repository:
    """Return the repository that `reference` names: mirrors of the site are for reading."""
    return Repository(reference, replace(site, mirrors={}, use_host=True), Transport(site.network()))


def open_push(reference: Reference, site: Site, pause: float = FIRST_PAUSE) -> Push:
    """Return a push to the registry that `reference` names.

    Raises PublishError if it does not answer or requires a login.
    """
    repository = open_repository(reference, site)
    misses: list[str] = []
    try:
        places = repository.places
    except InputError as error:
        raise PublishError(error.message, error.hint) from None
    for place in places:
        if not isinstance(place, RegistryAddress):
            continue
        try:
            send(repository.transport, "GET", f"{place.url}/v2/")
        except UnreachableError as error:
            if error.kind is MissKind.UNAUTHORIZED:
                raise refused_error(reference, error) from None
            misses.append(f"{place.url}: {error}")
            continue
        return Push(place, repository.transport, pause=pause)
    raise PublishError(
        f"the registry of {reference.name} cannot be used; tried: {'; '.join(misses)}",
        hint="check its name, the proxy and ca_bundle of site.yaml, then run the command again",
    )


def check_free(push: Push, reference: Reference, digest: str, move: bool) -> bool:
    """Return whether the tag names `digest` (``sha256:…``) already.

    Raises PublishError if it names another image, unless it may `move`.
    """
    try:
        found = push.manifest_digest(reference.tag)
    except UnreachableError as error:
        raise refused_error(reference, error) from None
    if found and found != digest and not move:
        raise PublishError(
            f"{reference.name}:{reference.tag} exists with another digest: {found}, and this image is {digest}",
            hint="publish with another tag (--to REPOSITORY:TAG), or replace it: --move",
        )
    return found == digest


def check_index(push: Push, reference: Reference, parts: ImageParts, index: str, *, move: bool) -> None:
    """Raise PublishError if an image cannot be added to an index: before anything is sent."""
    try:
        add_to_index(read_tag(push, index), parts, f"{reference.name}:{index}", move=move)
    except UnreachableError as error:
        raise refused_error(reference, error) from None


def publish_to_registry(
    parts: ImageParts,
    reference: Reference,
    push: Push,
    reporter: Reporter,
    *,
    move: bool,
    artifacts: Sequence[Artifact] = (),
    index: str = "",
) -> Published:
    """Push an image, its artifacts and its tag, and add it to the `index` (a tag).

    Raises PublishError with the cause; then no tag has changed, but for an image that is sent and not yet in its index.
    """
    there = check_free(push, reference, parts.digest, move)
    if index:
        check_index(push, reference, parts, index, move=move)
    all_blobs = count_digests(parts, artifacts)
    reporter.start("publish", f"publishing {reference.name}: looking for its {all_blobs} blobs there")
    try:
        wanted = list_new_blobs(parts.contents, there, artifacts, push, reference)
    finally:
        reporter.finish("publish")
    new: list[BlobContent] = []
    if not there or wanted:
        total = sum(part.size for part in wanted)
        push.sent = count_bytes(reporter, "publish", total)
        reporter.start("publish", f"publishing {reference.name}: {len(wanted)} blobs, {amount(total)}")
        try:
            new = push_blobs(wanted, push)
            push.manifest(parts.manifest, parts.kind, parts.digest)
            for item in artifacts:
                push_artifact(push, item.manifest, item.digest, item.subject, item.descriptor, OCI.manifest)
            if not check_free(push, reference, parts.digest, move):  # the blobs took their time
                push.manifest(parts.manifest, parts.kind, reference.tag)
            # No registry here honours a condition, so two publishers of one tag are noticed afterwards.
            if (found := push.manifest_digest(reference.tag)) != parts.digest:
                raise PublishError(
                    f"{reference.name}:{reference.tag} names {found or 'nothing'} after it was published as "
                    f"{parts.digest}",
                    hint="another publisher used the same tag; publish with a tag of your own",
                )
        except UnreachableError as error:
            raise refused_error(reference, error) from None
        finally:
            reporter.finish("publish")
    if index:
        try:
            push_index(push, parts, f"{reference.name}:{index}", index, move=move)
        except UnreachableError as error:
            raise refused_error(reference, error) from None
    return Published(
        f"{reference.name}:{reference.tag}",
        parts.digest,
        all_blobs - len(new),
        len(new),
        sum(part.size for part in new),
    )


def count_digests(parts: ImageParts, artifacts: Sequence[Artifact]) -> int:
    """Return the number of different blobs of an image and its artifacts."""
    return len({part.digest for part in parts.blobs} | {blob.digest for item in artifacts for blob in item.blobs})


def list_new_blobs(
    blobs: Sequence[BlobContent], there: bool, artifacts: Sequence[Artifact], push: Push, reference: Reference
) -> list[BlobContent]:
    """Return the blobs of an image, unless its manifest is `there`, and those of the artifacts that the repository does
    not list, each once; of the others those that it lacks. Raises PublishError."""
    new: dict[str, BlobContent] = {}
    others: dict[str, BlobContent] = {}
    (others if there else new).update((blob.digest, blob) for blob in blobs)
    try:
        for item in artifacts:
            listed = push.manifest_digest(item.digest) == item.digest and is_listed(push, item)
            (others if listed else new).update((blob.digest, blob) for blob in item.blobs)
        missing = missing_blobs([blob for digest, blob in others.items() if digest not in new], push)
    except UnreachableError as error:
        raise refused_error(reference, error) from None
    return [*new.values(), *missing]


def missing_blobs(blobs: Sequence[BlobContent], push: Push) -> list[BlobContent]:
    """Return those of the blobs of listed manifests that the repository lacks: an administrator deletes damaged ones.
    Raises UnreachableError."""

    def is_there(blob: BlobContent) -> bool:
        with push.lanes.lane():
            return push.has_blob(blob.digest)

    with ThreadPoolExecutor(PARALLEL) as pool:
        return [blob for blob, there in zip(blobs, pool.map(is_there, blobs), strict=True) if not there]


def is_listed(push: Push, item: Artifact) -> bool:
    """Return whether the registry lists an artifact among those of its image."""
    found = list_referrers(push.at, push.transport, item.subject, item.kind)
    return has_entry([entry for entry in found if isinstance(entry, dict)], item.digest)


def push_blobs(blobs: Sequence[BlobContent], push: Push) -> list[BlobContent]:
    """Push the blobs that the repository lacks, the largest first. Return them."""
    wanted = sorted(blobs, key=lambda blob: -blob.size)
    failed = threading.Event()  # then no other blob begins

    def push_one(blob: BlobContent) -> bool:
        try:
            with push.lanes.lane():
                return not failed.is_set() and push.blob(blob.open, blob.digest, blob.size, blob.start)
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(PARALLEL) as pool:
        sent = list(pool.map(push_one, wanted))
    return [blob for blob, new in zip(wanted, sent, strict=True) if new]


def refused_error(reference: Reference, error: UnreachableError) -> PublishError:
    """Return the error for a registry that refuses a push, or stops answering."""
    message = f"{reference.name} cannot be published: {error}"
    if error.hint:
        return PublishError(message, error.hint)
    if isinstance(error, RegistryRefusal) and error.status in (401, 403):
        return PublishError(message, f"the login may not push there; run: docker login {reference.registry}")
    if isinstance(error, RegistryRefusal) and error.status == 405:
        return PublishError(message, "the registry is read-only: name another one with --to")
    return PublishError(message, "run the command again: blobs that arrived are not sent a second time")
