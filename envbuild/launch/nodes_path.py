"""The squashfs file of an image of the project at the path from which compute nodes read it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from envbuild.core.digest import file_digest
from envbuild.core.errors import EnvbuildError
from envbuild.core.shell import shell_word
from envbuild.launch.model import LaunchImage
from envbuild.launch.shared_path import is_shared
from envbuild.launch.ssh_server import has_server
from envbuild.lock.model import Lock, lock_digest
from envbuild.spec.workspace import Workspace
from envbuild.verify.contents.metadata import ImageMetadata


def nodes_path(
    name: str, file: Path | None, within: ImageMetadata | None, lock: Lock | None, workspace: Workspace
) -> tuple[str, tuple[str, str], tuple[str, str]]:
    """Return the path at which compute nodes read an image, or why there is none (with a hint); and how the file there
    is another one than the image of the project, with the command that copies it.

    file: the file of the image in the store, and what is `within` it; None if it is not built here. lock: the current
    one."""
    folder = workspace.site.images
    if folder:
        path = Path(folder) / f"{name}.sqsh"
        difference = compare_copy(path, within, lock)
        return str(path), ("", ""), (difference, copy_command(name, path) if difference else "")
    if file and is_shared(file):
        link = file.with_name(f"{name}.sqsh")  # to the image that was made last with this name, perhaps elsewhere
        return str(link if os.path.realpath(link) == os.path.realpath(file) else file), ("", ""), ("", "")
    message = f"no folder is known from which compute nodes read {name}"
    copy = f"envbuild export {name} --to squashfs -o /a/shared/folder/{shell_word(name)}.sqsh"
    hint = f"write images: /a/shared/folder into site.yaml; then: {copy}"
    return "", (message, hint), ("", "")


def compare_copy(path: Path, within: ImageMetadata | None, lock: Lock | None) -> str:
    """Return how the file at `path` differs from the image of the project; empty where this machine cannot read it.
    Of an image that is not built here the locks are compared."""
    if not os.path.isdir(path.parent):  # noqa: PTH112  # of compute nodes alone
        return ""
    if not os.path.exists(path):  # noqa: PTH110  # this machine may not enter the folder
        return f"{path} does not exist yet"
    try:
        found, _ = read_file(path)
    except OSError:
        return ""
    except EnvbuildError as error:
        return f"{path} cannot be read, because {error.message}"
    if within:
        same = configuration_of(found) == configuration_of(within)
    else:
        same = lock is None or (found.lock is not None and lock_digest(found.lock) == lock_digest(lock))
    return "" if same else f"{path} is another image than that of the project"


def copy_command(name: str, path: Path) -> str:
    """Return the command that copies an image of the project to the path from which nodes read it."""
    return f"envbuild export {name} --to squashfs -o {shell_word(path)}"


def check_copy(image: LaunchImage) -> None:
    """Raise EnvbuildError if the file that nodes read has other bytes than that of the image as it is built here: what
    a file states about itself, which `compare_copy` reads, is the word of who wrote it. A file that this machine cannot
    reach is not judged."""
    if image.other[0]:
        raise EnvbuildError(*image.other)
    path = Path(image.squashfs)
    try:
        digest = file_digest(path)
    except (FileNotFoundError, PermissionError):
        return
    except OSError as error:
        raise EnvbuildError(f"{path} cannot be read: {error.strerror or error}") from None
    if f"sha256:{digest}" != image.sha256:
        raise EnvbuildError(
            f"{path} has other bytes than the file of {image.name} that is built here",
            hint=copy_command(image.name, path),
        )


def configuration_of(found: ImageMetadata) -> str:
    """Return the digest of the configuration of an image, which names all layers; empty if the file records none."""
    image = found.export.get("image")
    return str(image.get("config", "")) if isinstance(image, Mapping) else ""


def read_file(file: Path) -> tuple[ImageMetadata, bool]:
    """Return the metadata of a squashfs file, and whether it has an SSH server. Raises VerifyError if it is damaged."""
    from envbuild.squashfs.read.tree import SquashTree
    from envbuild.verify.contents.metadata import read_metadata

    with SquashTree(file) as tree:
        return read_metadata(tree), has_server(tree)
