"""Publishing into an OCI layout on a shared file system: files by digest, the index last, under a lock.

Readers of the layout see an image whole or not at all. Other users may write the folder, too: it and its subfolders are
opened once, and neither they nor files in them are followed as links. Format: OCI image spec 1.1, image-layout.md.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from envbuild.core.digest import file_digest
from envbuild.core.errors import PublishError
from envbuild.core.regular_file import TooLargeError, read_bounded
from envbuild.core.store.lock_holder import wait_for_lock
from envbuild.core.store.store import write_atomic
from envbuild.net.registry.media_types import REF_NAME
from envbuild.oci.config import canonical_json
from envbuild.oci.layout import check_output
from envbuild.publish.layout_index import names, read_index
from envbuild.publish.layout_parts import LayoutParts

INDEX = "application/vnd.oci.image.index.v1+json"
WAIT = 1800.0  # seconds for another publisher: copying a large image to a slow file system takes some minutes
OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def publish_to_folder(
    parts: LayoutParts, folder: Path, tag: str, arch: str, *, move: bool, report: Callable[[str], object]
) -> tuple[int, int]:
    """Add an image under `tag` to the layout `folder`, which is made if needed. Return (blobs, bytes) that were copied.

    `report` is called with a sentence when another publisher lets it wait.

    Raises PublishError if the folder is something else, cannot be written, is locked for `WAIT` seconds, or has the tag
    with another digest (unless it may `move`).
    """
    try:
        check_output(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with _open_layout(folder, report) as (here, blobs):
            index = read_index(here, folder)
            _check_tag(index, folder, tag, parts.digest, arch, move)
            copied = [_copy(parts.path(part), blobs / part.digest, part.digest) for part in parts.blobs]
            copied.append(_write(parts.manifest, blobs / parts.digest.removeprefix("sha256:")))
            marker = canonical_json({"imageLayoutVersion": "1.0.0"})
            write_atomic(here / "oci-layout", lambda file: file.write(marker))
            entry = {
                "mediaType": parts.kind,
                "digest": parts.digest,
                "size": len(parts.manifest),
                "annotations": {REF_NAME: tag},
                "platform": {"architecture": arch, "os": "linux"},
            }
            others = [item for item in index if not names(item, tag, arch)]
            value = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [*others, entry]}
            write_atomic(here / "index.json", lambda file: file.write(canonical_json(value)))
    except OSError as error:
        raise PublishError(
            f"{folder} cannot be written: {error.strerror or error}",
            hint="choose a writable folder on a disk with free space:  --to oci:DIR",
        ) from None
    return sum(1 for size in copied if size), sum(copied)


@contextlib.contextmanager
def _open_layout(folder: Path, report: Callable[[str], object]) -> Iterator[tuple[Path, Path]]:
    """Yield paths of the open folder and of its blobs (proc_pid_fd(5)), which no rename leads elsewhere. One publisher
    at a time is let in; a file system without locks excludes none. Raises OSError for a link in the place of a folder;
    PublishError.
    """
    with contextlib.ExitStack() as stack:
        fd = os.open(folder, OPEN & ~os.O_NOFOLLOW)  # the folder itself may be a link: its user named it
        stack.callback(os.close, fd)
        _wait_for_others(fd, folder, report)
        here = fd
        for name in ("blobs", "sha256"):
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=fd)
            fd = os.open(name, OPEN, dir_fd=fd)
            stack.callback(os.close, fd)
        yield Path(f"/proc/self/fd/{here}"), Path(f"/proc/self/fd/{fd}")


def _wait_for_others(fd: int, folder: Path, report: Callable[[str], object]) -> None:
    """Take the lock of the open folder; any user who may read the folder can hold it.

    Raises PublishError after `WAIT`.
    """
    try:
        wait_for_lock(
            fd, fcntl.LOCK_EX, lambda holder: report(f"waiting for the lock of {folder}, held by {holder}"), WAIT
        )
    except TimeoutError as error:
        raise PublishError(
            f"{folder} cannot be written: {error}", hint="end that process, or publish into another folder"
        ) from None
    except OSError:  # a file system without locks
        return


def _check_tag(index: list[dict[str, Any]], folder: Path, tag: str, digest: str, arch: str, move: bool) -> None:
    found = [item["digest"] for item in index if names(item, tag, arch)]
    if found and found[0] != digest and not move:
        raise PublishError(
            f"oci:{folder}:{tag} exists with another digest: {found[0]}, and this image is {digest}",
            hint="publish with another tag (--to oci:DIR:TAG), or replace it: --move",
        )


def _copy(source: Path, target: Path, digest: str) -> int:
    """Copy a blob (hex), unless the layout has it. Return the bytes that were written."""
    with contextlib.suppress(OSError):  # missing, or not a regular file: it is replaced
        if file_digest(target, follow=False) == digest:
            return 0
    with source.open("rb") as file:
        write_atomic(target, lambda out: shutil.copyfileobj(file, out, 1 << 20))
    return source.stat().st_size


def _write(content: bytes, target: Path) -> int:
    with contextlib.suppress(OSError, TooLargeError):
        if read_bounded(target, len(content), follow=False) == content:
            return 0
    write_atomic(target, lambda file: file.write(content))
    return len(content)
