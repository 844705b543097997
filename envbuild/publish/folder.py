"""Publishing into an OCI layout on a shared file system: files by digest, the index last, under a lock.

Readers of the layout see an image whole or not at all. Format: OCI image spec 1.1, image-layout.md.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envbuild.core.digest import file_digest
from envbuild.core.errors import PublishError
from envbuild.core.store.store import write_atomic
from envbuild.net.registry.media_types import REF_NAME
from envbuild.oci.config import canonical_json
from envbuild.oci.layout import check_output
from envbuild.publish.layout_parts import LayoutParts

INDEX = "application/vnd.oci.image.index.v1+json"


def publish_to_folder(parts: LayoutParts, folder: Path, tag: str, arch: str, *, move: bool) -> tuple[int, int]:
    """Add an image under `tag` to the layout `folder`, which is made if needed. Return (blobs, bytes) that were copied.

    Raises PublishError if the folder is something else, cannot be written, or has the tag with another digest (unless
    it may `move`).
    """
    try:
        check_output(folder)
        (folder / "blobs/sha256").mkdir(parents=True, exist_ok=True)
        with _exclusive(folder):
            index = _read_index(folder)
            _check_tag(index, folder, tag, parts.digest, arch, move)
            copied = [_copy(parts.path(part), folder, part.digest) for part in parts.blobs]
            copied.append(_write(parts.manifest, folder, parts.digest.removeprefix("sha256:")))
            marker = canonical_json({"imageLayoutVersion": "1.0.0"})
            write_atomic(folder / "oci-layout", lambda file: file.write(marker))
            entry = {
                "mediaType": parts.kind,
                "digest": parts.digest,
                "size": len(parts.manifest),
                "annotations": {REF_NAME: tag},
                "platform": {"architecture": arch, "os": "linux"},
            }
            others = [item for item in index if not _is(item, tag, arch)]
            value = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [*others, entry]}
            write_atomic(folder / "index.json", lambda file: file.write(canonical_json(value)))
    except OSError as error:
        raise PublishError(
            f"{folder} cannot be written: {error.strerror or error}",
            hint="choose a writable folder on a disk with free space:  --to oci:DIR",
            where=str(error.filename or folder),
        ) from None
    return sum(1 for size in copied if size), sum(copied)


@contextlib.contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Let one publisher at a time change a layout; a file system without locks excludes none."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read_index(folder: Path) -> list[dict[str, Any]]:
    try:
        listed: list[dict[str, Any]] = json.loads((folder / "index.json").read_bytes())["manifests"]
        [item["digest"] for item in listed]
    except FileNotFoundError:
        return []
    except (ValueError, LookupError, TypeError):
        raise PublishError(
            "the index of the layout is malformed", hint="publish into another folder", where=str(folder / "index.json")
        ) from None
    return listed


def _is(item: dict[str, Any], tag: str, arch: str) -> bool:
    platform = item.get("platform") or {}
    return (item.get("annotations") or {}).get(REF_NAME) == tag and platform.get("architecture", arch) == arch


def _check_tag(index: list[dict[str, Any]], folder: Path, tag: str, digest: str, arch: str, move: bool) -> None:
    found = [item["digest"] for item in index if _is(item, tag, arch)]
    if found and found[0] != digest and not move:
        raise PublishError(
            f"oci:{folder}:{tag} exists with another digest: {found[0]}, and this image is {digest}",
            hint="publish with another tag (--to oci:DIR:TAG), or replace it: --move",
        )


def _copy(source: Path, folder: Path, digest: str) -> int:
    """Copy a blob (hex), unless the layout has it whole. Return the bytes that were written."""
    target = folder / "blobs/sha256" / digest
    if target.is_file() and target.stat().st_size == source.stat().st_size and file_digest(target) == digest:
        return 0
    with source.open("rb") as file:
        write_atomic(target, lambda out: shutil.copyfileobj(file, out, 1 << 20))
    return source.stat().st_size


def _write(content: bytes, folder: Path, digest: str) -> int:
    target = folder / "blobs/sha256" / digest
    if target.is_file() and target.read_bytes() == content:
        return 0
    write_atomic(target, lambda file: file.write(content))
    return len(content)
