"""The output format squashfs: a copy of the file that `make` wrote, or a file with another compression."""

from __future__ import annotations

import time
from pathlib import Path

from envbuild.core.digest import HOLLOW, file_digest
from envbuild.core.errors import VerifyError
from envbuild.core.regular_file import TooLargeError
from envbuild.core.result import Result
from envbuild.core.store.store import Store
from envbuild.core.text import amount
from envbuild.export.built_image import BuiltImage
from envbuild.export.options import ExportOptions
from envbuild.export.progress import Progress
from envbuild.export.project_image import SquashfsFile, describe_squashfs, write_squashfs


def write_squashfs_output(image: BuiltImage, options: ExportOptions, progress: Progress) -> Result:
    """Write the squashfs file of a built image: a copy of the file that `make` wrote, or one with another
    compression."""
    began = time.monotonic()
    artifact = write_packed(image, options, progress) if options.suffix else copy_artifact(image, options, progress)
    layers = [{"diff_id": layer.diff_id, "bytes": layer.size} for layer in image.layers]
    data = {
        "path": str(artifact.path),
        "sha256": artifact.sha256,
        "size": artifact.size,
        "layers": layers,
        "repairs": list(artifact.messages),
        "seconds": round(time.monotonic() - began, 1),
    }
    read = bool(options.suffix) or is_compared(options, progress.workspace.store)
    return Result(data, describe_squashfs(artifact, "" if read else " (recorded when it was made)"))


def write_packed(image: BuiltImage, options: ExportOptions, progress: Progress) -> SquashfsFile:
    """Write a file with another compression, or with the metadata that `make` leaves out."""
    made = Path(image.record.artifact)
    own = made.with_name(f"{made.name.removesuffix('.sqsh')}{options.suffix}.sqsh")
    out = options.output.file(own.name) if options.output else own
    store, progress.output = progress.workspace.store, out
    return write_squashfs(image.plan, image.layers, image.lock, store, progress, out, options)


def copy_artifact(image: BuiltImage, options: ExportOptions, progress: Progress) -> SquashfsFile:
    """Copy the file that `make` wrote; without -o, return that file."""
    from envbuild.export.write_errors import raise_write_errors
    from envbuild.squashfs.write.copy_extents import copy_file
    from envbuild.squashfs.write.output_file import open_output

    path, store = Path(image.record.artifact), progress.workspace.store
    if options.output is not None:
        progress.output = output = options.output.file(path.name)
        progress.start("squashfs", f"squashfs {output.name}: copying {amount(path.stat().st_size)}")
        progress.advance("squashfs", 0, path.stat().st_size)
        with raise_write_errors(output), open_output(output) as file:
            copy_file(path, file.fd)
            check_copy(file.handle, image, options, store)
            file.publish()
        path = output
        progress.finish("squashfs")
    else:
        check_copy(path, image, options, store)
    return SquashfsFile(path, image.record.sha256, path.stat().st_size, image.record.messages)


def is_compared(options: ExportOptions, store: Store) -> bool:
    return options.sha256 or store.is_shared


def check_copy(path: Path, image: BuiltImage, options: ExportOptions, store: Store) -> None:
    """Read the file if its sha256 is requested, or if another member of a group may have replaced it. Raises
    VerifyError if it is not the recorded one."""
    if not is_compared(options, store):
        return
    try:
        found = file_digest(path)
    except TooLargeError:
        found = HOLLOW
    if found != image.record.sha256:
        raise VerifyError(
            f"the file of {image.record.image} is damaged: expected sha256 {image.record.sha256}, got {found}",
            hint=f"envbuild verify {image.record.image}",
            where=image.record.artifact,
        )
