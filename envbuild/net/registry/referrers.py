"""Artifacts that belong to an image (OCI distribution spec 1.1, "Listing Referrers"): the call for them, and the tag
``sha256-<hex>`` that lists them where a registry does not know the call, and in layouts."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urljoin

from envbuild.core.json_text import json_value
from envbuild.net.body import read_body
from envbuild.net.failures import NotFoundError, RefusedError
from envbuild.net.miss import MissKind
from envbuild.net.registry.auth import split_url
from envbuild.net.registry.client import RegistryAddress
from envbuild.net.registry.layout_folder import LayoutFolder
from envbuild.net.registry.media_types import INDEX
from envbuild.net.transport import Transport, retry

MAX_PAGES, MAX_ENTRIES = 20, 10_000  # of one list; together its pages have the bytes of a manifest
NEXT = re.compile(r'<([^<>]*)>\s*;\s*rel="?next"?')


def fallback_tag(digest: str) -> str:
    """Return the tag that lists the artifacts of the image ``sha256:…``."""
    return digest.replace(":", "-")


def list_referrers(place: RegistryAddress | LayoutFolder, transport: Transport, digest: str, kind: str) -> list[Any]:
    """Return the descriptors of the artifacts of the image ``sha256:…`` at one place, at least those of `kind`.

    Raises UnreachableError, RefusedError.
    """
    found: list[Any] = []
    if isinstance(place, RegistryAddress):
        try:
            found = _call(place, transport, digest, kind)
        except NotFoundError:
            found = []
        except RefusedError as error:
            if error.kind is MissKind.UNAUTHORIZED:
                raise
    if any(isinstance(entry, dict) and entry.get("artifactType") == kind for entry in found):
        return found
    tag = fallback_tag(digest)
    try:
        if isinstance(place, LayoutFolder):
            place = replace(place, names=(tag,), exclusive=False)
        return [*found, *_entries(place.manifest(transport, tag))]
    except NotFoundError:
        return found


def _call(place: RegistryAddress, transport: Transport, digest: str, kind: str) -> list[Any]:
    url = f"{place.url}/v2/{place.repository}/referrers/{digest}?artifactType={quote(kind, safe='')}"
    found: list[Any] = []
    size = 0
    for _ in range(MAX_PAGES):
        content, link = retry(lambda url=url: _page(transport, url))  # type: ignore[misc]
        found += _entries(content)
        size += len(content)
        if size > transport.limits.manifest or len(found) > MAX_ENTRIES:
            raise RefusedError("its list of artifacts is too long")
        following = NEXT.search(link)
        if not following:
            break
        try:
            after = urljoin(url, following[1])
            same = split_url(after)[0] == split_url(url)[0]  # the login is for this host, and not without its https
        except ValueError:
            raise RefusedError("its list of artifacts names a malformed address") from None
        if not same:
            break
        url = after
    return found


def _page(transport: Transport, url: str) -> tuple[bytes, str]:
    with transport.get(url, {"Accept": INDEX}) as answer:
        content = b"".join(read_body(answer, transport.limits.manifest, transport.limits, decode=True))
        return content, answer.headers.get("Link", "")


def _entries(content: bytes) -> list[Any]:
    try:
        found: Any = json_value(content)["manifests"]
    except (ValueError, LookupError, TypeError):
        found = None
    if not isinstance(found, list):
        raise RefusedError("its list of artifacts is malformed")
    if len(found) > MAX_ENTRIES:
        raise RefusedError(f"its list of artifacts has more than {MAX_ENTRIES} entries")
    return found
