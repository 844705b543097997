"""The list of an image's artifacts in a registry that has no call for it: an index under the tag ``sha256-<hex>``.

No registry here honours conditions of a write: two publishers at once can lose an entry of each other. So it is read
back, and written again where the own entry is missing.
"""

from __future__ import annotations

from typing import Any

from envbuild.core.errors import PublishError
from envbuild.core.json_text import canonical_json, check_writable, json_value
from envbuild.net.registry.media_types import INDEX
from envbuild.net.registry.push import Push
from envbuild.net.registry.referrers import fallback_tag
from envbuild.net.registry.upload import RegistryRefusal
from envbuild.publish.platform_index import read_tag

TRIES = 5
ANSWER = "OCI-Subject"  # the header of a registry that lists the artifact itself


def push_artifact(push: Push, manifest: bytes, digest: str, subject: str, entry: dict[str, Any], kind: str) -> bool:
    """Put the manifest of an artifact of the image `subject` (``sha256:…``), whose blobs are there, and list it.

    `entry`: its descriptor; `kind`: its media type. Return whether it was not there. Raises PublishError,
    UnreachableError.
    """
    known = push.manifest_digest(digest) == digest
    if known and has_entry(read_list(push, subject), digest):
        return False
    try:
        answer = push.manifest(manifest, kind, digest)
    except RegistryRefusal as error:  # with the same login as the image, which it took
        raise PublishError(
            f"{push.at} takes the image and refuses the artifact with its squashfs file: {error}",
            hint="publish into a registry that takes artifacts of OCI 1.1, or into a folder: --to oci:DIR",
        ) from None
    if not answer.headers.get(ANSWER):
        list_artifact(push, subject, entry)
    return not known


def list_artifact(push: Push, subject: str, entry: dict[str, Any]) -> None:
    """Add an artifact to the tag that lists those of `subject`; other entries remain. Raises PublishError."""
    for _ in range(TRIES):
        entries = read_list(push, subject)
        if has_entry(entries, entry["digest"]):
            return
        value = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [*entries, entry]}
        push.manifest(canonical_json(value), INDEX, fallback_tag(subject))
    if not has_entry(read_list(push, subject), entry["digest"]):
        raise PublishError(
            f"the list of artifacts {push.at}:{fallback_tag(subject)} loses entries: another publisher writes it, too",
            hint="run the command again",
        )


def read_list(push: Push, subject: str) -> list[dict[str, Any]]:
    """Return the entries of the tag that lists the artifacts of `subject`; none if there is no such tag.

    Raises PublishError if the tag names something else.
    """
    tag = fallback_tag(subject)
    if not (content := read_tag(push, tag)):
        return []
    try:
        check_writable(value := json_value(content))
        entries = value["manifests"]
        if isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries):
            return entries
    except (ValueError, LookupError, TypeError):
        pass
    raise PublishError(
        f"{push.at}:{tag} is not a list of artifacts, and is not replaced",
        hint="delete that tag, or publish into another repository",
    )


def has_entry(entries: list[dict[str, Any]], digest: str) -> bool:
    """Return whether a list names the artifact `digest` (``sha256:…``)."""
    return any(entry.get("digest") == digest for entry in entries)
