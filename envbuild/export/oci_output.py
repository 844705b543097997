"""The output format oci: a layout folder."""

from __future__ import annotations

from envbuild.core.result import Result
from envbuild.export.built_image import BuiltImage
from envbuild.export.options import ExportOptions
from envbuild.export.progress import Progress
from envbuild.lock.model import lock_digest
from envbuild.oci.layout import write_layout
from envbuild.squashfs.pack.unpack import ensure_trees


def write_oci_output(image: BuiltImage, options: ExportOptions, progress: Progress) -> Result:
    """Write the OCI layout of a built image."""
    store, short = progress.workspace.store, lock_digest(image.lock)[7:19]
    own = store.root / "artifacts" / f"{image.plan.image}-{short}.oci"
    out = options.output.path if options.output else own
    progress.output = out
    progress.start("oci", f"OCI layout {out.name}")
    ensure_trees(store, [layer.diff_id for layer in image.layers])
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
