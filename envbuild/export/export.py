"""The outputs of an export: a squashfs file, an OCI layout, an image in the Docker Engine. Each returns data and a text
and prints nothing."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.core.errors import SpecError
from envbuild.core.result import Result
from envbuild.core.text import amount, counted
from envbuild.export.built_image import BuiltImage
from envbuild.export.options import ExportOptions
from envbuild.export.progress import Progress
from envbuild.spec.workspace import Workspace

if TYPE_CHECKING:
    from envbuild.export.project_image import Artifact


def export_foreign(source: str, options: ExportOptions, workspace: Workspace) -> Result:
    """Export a third-party image as squashfs."""
    from envbuild.export.foreign_image import convert_image

    if options.to != "squashfs":
        target = "docker-daemon:NAME:TAG" if options.to == "docker" else "oci:DIR"
        raise SpecError(
            f"--to {options.to} is for images of the project",
            hint=f"--to squashfs, or: skopeo copy {source} {target}",
        )
    _ = options.pack_format
    if options.output:
        options.output.prepare(source)
    done = convert_image(source, workspace, options)
    artifact = done.artifact
    data = {
        "source": done.reference,
        "origin": done.origin,
        "config": done.identity,
        "path": str(artifact.path),
        "sha256": artifact.sha256,
        "size": artifact.size,
        "layers": [asdict(layer) for layer in done.layers],
        "repairs": list(artifact.messages),
        "seconds": done.seconds,
        "up_to_date": done.up_to_date,
    }
    packed = sum(not layer.cached for layer in done.layers)
    work = (
        "up to date, nothing to do"
        if done.up_to_date
        else (f"{counted(packed, 'layer')} packed, {len(done.layers) - packed} packed before, in {done.seconds:.0f} s")
    )
    return Result(data, f"{done.reference}: {work}\n{describe_artifact(artifact)}")


def describe_artifact(artifact: Artifact) -> str:
    """Return lines with the path of a file, its size and the command that starts it."""
    path = artifact.path.resolve()
    digest = f"  sha256: {artifact.sha256}\n" if artifact.sha256 else ""
    return (
        f"{artifact.path}\n{digest}  size:   {amount(artifact.size)}\n"
        f"  start:  srun --container-image={path} --pty bash"
    )


def write_output(image: BuiltImage, options: ExportOptions, progress: Progress) -> Result:
    """Write one output of a built image."""
    write = {"squashfs": write_squashfs_output, "oci": write_layout_output, "docker": load_docker_output}[options.to]
    return write(image, options, progress)


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
    return Result(data, describe_artifact(artifact))


def write_packed(image: BuiltImage, options: ExportOptions, progress: Progress) -> Artifact:
    """Write a file with another compression, or with the metadata that `make` leaves out."""
    from envbuild.export.project_image import write_squashfs

    made = Path(image.record.artifact)
    own = made.with_name(f"{made.name.removesuffix('.sqsh')}{options.suffix}.sqsh")
    out = options.output.file(own.name) if options.output else own
    store, progress.output = progress.workspace.store, out
    return write_squashfs(image.plan, image.layers, image.lock, store, progress, out, options)


def copy_artifact(image: BuiltImage, options: ExportOptions, progress: Progress) -> Artifact:
    """Copy the file that `make` wrote; without -o, return that file."""
    from envbuild.export.project_image import Artifact
    from envbuild.export.squashfs_image import raise_write_errors
    from envbuild.squashfs.write.copy_extents import copy_file
    from envbuild.squashfs.write.writer import image_file

    path = Path(image.record.artifact)
    if options.output is not None:
        progress.output = output = options.output.file(path.name)
        progress.start("squashfs", f"squashfs {output.name}: copying {amount(path.stat().st_size)}")
        progress.advance("squashfs", 0, path.stat().st_size)
        with raise_write_errors(output), image_file(output) as (file, temporary):
            copy_file(path, file)
            temporary.chmod(0o644)  # another mode is enroot's "Invalid image format" for every other user
            path = temporary.replace(output)
        progress.finish("squashfs")
    return Artifact(path, image.record.sha256, path.stat().st_size, image.record.messages)


def write_layout_output(image: BuiltImage, options: ExportOptions, progress: Progress) -> Result:
    """Write the OCI layout of a built image."""
    from envbuild.lock.lockfile import lock_digest
    from envbuild.oci.layout import write_layout

    store, short = progress.workspace.store, lock_digest(image.lock)[7:19]
    own = store.root / "artifacts" / f"{image.plan.image}-{short}.oci"
    out = options.output.path if options.output else own
    progress.output = out
    progress.start("oci", f"OCI layout {out.name}")
    layout = write_layout(
        image.layers,
        image.plan.config,
        out,
        store,
        epoch=image.plan.epoch,
        name=image.plan.image,
        compression=options.compression or "gzip",
    )
    progress.finish("oci")
    data = {"path": str(out), "manifest": layout.manifest_digest, "config": layout.config_digest}
    return Result(
        data,
        f"{out}\n  manifest: {layout.manifest_digest}\n"
        f"  copy:     skopeo copy oci:{out} docker://REGISTRY/{image.plan.image}:{short}",
    )


def load_docker_output(image: BuiltImage, options: ExportOptions, progress: Progress) -> Result:
    """Load a built image into the Docker Engine."""
    from envbuild.lock.lockfile import lock_digest
    from envbuild.oci.docker_engine import load_image

    workspace = progress.workspace
    reference = options.tag or f"{image.plan.image}:{lock_digest(image.lock)[7:19]}"
    identity = load_image(
        image.layers,
        image.plan.config,
        workspace.store,
        epoch=image.plan.epoch,
        reference=reference,
        reporter=workspace.reporter,
    )
    return Result(
        {"reference": reference, "id": identity},
        f"{reference}\n  id:    {identity}\n  start: docker run --rm -it {reference}",
    )
