"""The output format docker: an image in the Docker Engine of this machine."""

from __future__ import annotations

from envbuild.core.result import Result
from envbuild.export.built_image import BuiltImage
from envbuild.export.options import ExportOptions
from envbuild.export.progress import Progress
from envbuild.lock.model import lock_digest
from envbuild.oci.docker_engine import load_image
from envbuild.squashfs.pack.unpack import ensure_trees


def write_docker_output(image: BuiltImage, options: ExportOptions, progress: Progress) -> Result:
    """Load a built image into the Docker Engine."""
    workspace = progress.workspace
    reference = options.tag or f"{image.plan.image}:{lock_digest(image.lock)[7:19]}"
    ensure_trees(workspace.store, [layer.diff_id for layer in image.layers])
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
