"""Publishing into an OCI layout on a shared file system: files by digest, the index last, under a lock.

Readers of the layout see an image whole or not at all. Other users may write the folder, too: it and its subfolders are
opened once, and neither they nor files in them are followed as links. Format: OCI image spec 1.1, image-layout.md.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from envbuild.core.digest import file_digest
from envbuild.core.errors import PublishError, VerifyError
from envbuild.core.json_text import canonical_json
from envbuild.core.regular_file import TooLargeError, read_bounded
from envbuild.core.shell import shell_word
from envbuild.core.store.lock_holder import wait_for_lock
from envbuild.core.store.store import write_atomic
from envbuild.net.registry.media_types import REF_NAME
from envbuild.net.registry.push import FilePart
from envbuild.publish.image_parts import BlobContent, ImageParts
from envbuild.publish.layout_artifacts import list_artifacts, without_artifacts
from envbuild.publish.layout_index import (
    add_to_tag,
    describe_index,
    names,
    new_index,
    read_index,
    ref_name,
)
from envbuild.publish.squashfs_artifact import Artifact

WAIT = 1800.0  # seconds for another publisher: copying a large image to a slow file system takes some minutes
# What `write_atomic` calls a file until it is complete.
UNFINISHED = re.compile(r"\.([0-9a-f]{64}|index\.json|oci-layout)\.[0-9a-f]{8}")
OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def publish_to_folder(
    parts: ImageParts,
    folder: Path,
    tag: str,
    *,
    move: bool,
    report: Callable[[str], object],
    artifacts: Sequence[Artifact] = (),
    platforms: str = "",
) -> tuple[int, int]:
    """Add an image under `tag`, and its artifacts, to the layout `folder`, which is made if needed. Return (blobs,
    bytes) that were copied. `platforms`: the tag of an index of several platforms that it is added to.

    `report` is called with a sentence when another publisher lets it wait.

    Raises PublishError if the folder is something else, cannot be written, is locked for `WAIT` seconds, or has the tag
    with another digest (unless it may `move`).
    """
    try:
        check_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        arch = parts.architecture
        with open_layout(folder, report) as (here, blobs):
            index = read_index(here, folder)
            _check_tag(index, folder, tag, parts.digest, arch, move)
            listing = add_to_tag(index, blobs, parts, folder, platforms, move=move) if platforms else b""
            wanted = [*parts.contents, *(blob for item in artifacts for blob in item.blobs)]
            copied = [copy_blob(blob, blobs) for blob in {blob.digest: blob for blob in wanted}.values()]
            manifests = {parts.digest: parts.manifest} | {item.digest: item.manifest for item in artifacts}
            for digest, content in manifests.items():
                copied.append(write_blob(content, blobs / digest.removeprefix("sha256:")))
            entry = {
                "mediaType": parts.kind,
                "digest": parts.digest,
                "size": len(parts.manifest),
                "annotations": {REF_NAME: tag},
                "platform": dict(parts.platform),
            }
            others = [item for item in index if not names(item, tag, arch)]
            if listing:
                others = [item for item in others if ref_name(item) != platforms]
                others.append(describe_index(listing, platforms))
                write_blob(listing, blobs / hashlib.sha256(listing).hexdigest())
            lists = list_artifacts(parts.digest, artifacts, index, blobs, folder)
            for digest, content in lists.contents.items():  # they are of the folder, not of the image: not counted
                write_blob(content, blobs / digest)
            if artifacts:  # an image that is replaced keeps its own: nodes may name it by its digest
                others = without_artifacts(others, parts.digest, artifacts)
            entries = [*others, entry, *lists.entries]
            listed = new_index(entries, folder)
            write_atomic(here / "index.json", lambda file: file.write(listed))
    except OSError as error:
        hint = "choose a writable folder on a disk with free space:  --to oci:DIR"
        raise PublishError(
            f"{folder} cannot be written: {error.strerror or error}",
            hint=f"chmod -t {shell_word(folder)}" if is_sticky(folder, error) else hint,
        ) from None
    return sum(1 for size in copied if size), sum(copied)


@contextlib.contextmanager
def open_layout(folder: Path, report: Callable[[str], object]) -> Iterator[tuple[Path, Path]]:
    """Yield paths of the open folder and of its blobs (proc_pid_fd(5)), which no rename leads elsewhere. One publisher
    at a time is let in; a file system without locks excludes none. Raises OSError for a link in the place of a folder;
    PublishError.
    """
    with contextlib.ExitStack() as stack:
        fd = os.open(folder, OPEN & ~os.O_NOFOLLOW)  # the folder itself may be a link: its user named it
        stack.callback(os.close, fd)
        alone = _wait_for_others(fd, folder, report)
        here = Path(f"/proc/self/fd/{fd}")
        check_folder(folder, here)
        # First: what a publisher that was killed has left is a layout, too.
        marker = canonical_json({"imageLayoutVersion": "1.0.0"})
        write_blob(marker, here / "oci-layout")
        for name in ("blobs", "sha256"):
            fd = open_subfolder(name, fd)
            stack.callback(os.close, fd)
        blobs = Path(f"/proc/self/fd/{fd}")
        if alone:
            remove_unfinished(here, blobs)
        yield here, blobs


def open_subfolder(name: str, folder: int) -> int:
    """Open a folder in the open `folder`; make it, with the mode of that, if there is none. Raises OSError."""
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError:
        return os.open(name, OPEN, dir_fd=folder)
    made = os.open(name, OPEN, dir_fd=folder)
    os.fchmod(made, stat.S_IMODE(os.fstat(folder).st_mode))
    return made


def is_sticky(folder: Path, error: OSError) -> bool:
    """Return whether `folder` has the sticky bit, with which users cannot replace each other's index.json."""
    try:
        return error.errno == errno.EPERM and bool(folder.stat().st_mode & stat.S_ISVTX)
    except OSError:
        return False


def check_folder(folder: Path, here: Path | None = None) -> None:
    """Raise PublishError if `folder` (open: `here`) exists and is neither empty nor a layout, nor what a publisher that
    was killed leaves; OSError."""
    try:
        names = [path.name for path in (here or folder).iterdir()]
    except FileNotFoundError:
        return
    except NotADirectoryError:
        names = [""]
    if "oci-layout" not in names and not all(name == "blobs" or UNFINISHED.fullmatch(name) for name in names):
        new = folder / "images" if folder.is_dir() else folder.with_name(f"{folder.name}.oci")
        raise PublishError(f"{folder} exists and is not an OCI layout", hint=f"name a new folder: --to oci:{new}")


def remove_unfinished(*folders: Path) -> None:
    """Remove the files that publishers which were killed have left in open folders."""
    for path in [path for folder in folders for path in folder.iterdir() if UNFINISHED.fullmatch(path.name)]:
        with contextlib.suppress(OSError):  # of another user, in a folder with the sticky bit
            path.unlink()


def _wait_for_others(fd: int, folder: Path, report: Callable[[str], object]) -> bool:
    """Take the lock of the open folder; any user who may read the folder can hold it. Return whether there are locks.

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
        return False
    return True


def _check_tag(index: list[dict[str, Any]], folder: Path, tag: str, digest: str, arch: str, move: bool) -> None:
    found = [item["digest"] for item in index if names(item, tag, arch)]
    if found and found[0] != digest and not move:
        raise PublishError(
            f"oci:{folder}:{tag} exists with another digest: {found[0]}, and this image is {digest}",
            hint="publish with another tag (--to oci:DIR:TAG), or replace it: --move",
        )


def is_blob(path: Path, digest: str, size: int) -> bool:
    """Return whether a file is a blob (hex), whole. Another user may have put a larger one there, of holes or of many
    references to the same blocks (reflinks), which takes hours to read."""
    with contextlib.suppress(OSError):  # missing, or not a regular file
        return path.lstat().st_size == size and file_digest(path, follow=False) == digest
    return False


def copy_blob(blob: BlobContent, blobs: Path) -> int:
    """Copy a blob, unless the layout has it. Return the bytes that were written. Raises VerifyError for other bytes
    than its digest names: another user may have replaced the file since it was digested."""
    target = blobs / blob.digest
    if is_blob(target, blob.digest, blob.size):
        return 0
    with blob.open() as file:
        part = FilePart(file, blob.start, blob.start + blob.size)

        def copy(out: IO[bytes]) -> None:
            digest = hashlib.sha256()
            while data := part.read(1 << 20):
                digest.update(data)
                out.write(data)
            if digest.hexdigest() != blob.digest:
                raise VerifyError(
                    f"a file changed while it was published: expected sha256 {blob.digest}, got {digest.hexdigest()}",
                    hint="find what is damaged, and publish again: envbuild store check",
                )

        write_atomic(target, copy)
    return blob.size


def write_blob(content: bytes, target: Path) -> int:
    """Write a file, unless it has this content. Return the bytes that were written."""
    with contextlib.suppress(OSError, TooLargeError):
        if read_bounded(target, len(content), follow=False) == content:
            return 0
    write_atomic(target, lambda file: file.write(content))
    return len(content)
