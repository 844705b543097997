"""Publishing to a registry: blobs first, the manifest by its digest, the tag last, so that a tag never names a part."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from envbuild.core.console import Reporter
from envbuild.core.errors import InputError, PublishError
from envbuild.core.text import amount
from envbuild.net.failures import RefusedError, UnreachableError
from envbuild.net.registry.client import RegistryAddress, Repository
from envbuild.net.registry.push import Push
from envbuild.net.registry.reference import Reference
from envbuild.net.registry.upload import FIRST_PAUSE, RegistryRefusal, send
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from envbuild.oci.manifest import BlobDescriptor
from envbuild.publish.layout_parts import LayoutParts

PARALLEL = 4  # blobs that are sent at a time


@dataclass(frozen=True, slots=True)
class Published:
    """A published image: its `reference` by tag and `digest` (``sha256:…``), the blobs that were there already
    (`present`) and that were sent, and the bytes that were sent."""

    reference: str
    digest: str
    present: int
    sent: int
    sent_bytes: int


def open_push(reference: Reference, site: Site, pause: float = FIRST_PAUSE) -> Push:
    """Return a push to the registry that `reference` names: mirrors of the site are for reading.

    Raises PublishError if it does not answer or requires a login.
    """
    named = replace(site, mirrors={}, use_host=True)
    repository = Repository(reference, named, Transport(site.network()))
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
        except RefusedError as error:
            raise refused_error(reference, error) from None
        except UnreachableError as error:
            misses.append(f"{place.url}: {error}")
            continue
        return Push(place, repository.transport, pause=pause)
    raise PublishError(
        f"the registry of {reference.name} does not answer; tried: {'; '.join(misses)}",
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


def publish_to_registry(
    parts: LayoutParts, reference: Reference, push: Push, reporter: Reporter, *, move: bool
) -> Published:
    """Push an image and its tag. Raises PublishError with the cause; then no tag has changed."""
    there = check_free(push, reference, parts.digest, move)
    if not there:
        total, done, guard = sum(part.size for part in parts.blobs), 0, threading.Lock()

        def add(size: int) -> None:
            nonlocal done
            with guard:
                done += size
                reporter.advance("publish", done, total)

        push.sent = add
        reporter.start("publish", f"publishing {reference.name}: {len(parts.blobs)} blobs, {amount(total)}")
        try:
            new = _push_blobs(parts, push)
            push.manifest(parts.manifest, parts.kind, parts.digest)
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
    sent = [] if there else new
    return Published(
        f"{reference.name}:{reference.tag}",
        parts.digest,
        len(parts.blobs) - len(sent),
        len(sent),
        sum(part.size for part in sent),
    )


def _push_blobs(parts: LayoutParts, push: Push) -> list[BlobDescriptor]:
    """Push the blobs that the repository lacks, the largest first. Return them."""
    wanted = sorted(parts.blobs, key=lambda part: -part.size)
    with ThreadPoolExecutor(PARALLEL) as pool:
        sent = list(pool.map(lambda part: push.blob(parts.path(part), part.digest), wanted))
    return [part for part, new in zip(wanted, sent, strict=True) if new]


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
