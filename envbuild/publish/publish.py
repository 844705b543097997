"""``envbuild publish``: an image of the project to a registry or a folder, by digest."""

from __future__ import annotations

from envbuild.core.errors import SpecError
from envbuild.core.result import Result
from envbuild.core.text import amount, counted
from envbuild.export.built_image import BuiltImage
from envbuild.export.built_layout import open_built_layout
from envbuild.publish.destination import Destination, default_tag, parse_destination
from envbuild.publish.folder import publish_to_folder
from envbuild.publish.layout_parts import LayoutParts
from envbuild.publish.registry import open_push, publish_to_registry
from envbuild.spec.workspace import Workspace


def find_destination(to: str, image: BuiltImage, workspace: Workspace) -> Destination:
    """Return where an image is published: `to`, else the repository below the site's `registry` with its name.

    Raises SpecError.
    """
    name = image.plan.image
    if not to and not workspace.site.registry:
        raise SpecError(
            "publish needs a destination",
            hint=f"envbuild publish {name} --to REGISTRY/REPOSITORY[:TAG], or in site.yaml:  registry: REGISTRY/PATH",
        )
    tag = default_tag(image.resolution.target.name, name, image.lock.epoch)
    return parse_destination(to or f"{workspace.site.registry.rstrip('/')}/{name}", tag)


def publish_image(
    image: BuiltImage, destination: Destination, workspace: Workspace, *, compression: str, move: bool
) -> Result:
    """Publish a built image. `compression`: of the layers; `move`: a tag that names another image may be replaced.

    Raises PublishError.
    """
    reporter, arch = workspace.reporter, image.plan.config.architecture
    # The registry is contacted before the layers are compressed, which takes longer.
    push = open_push(destination.reference, workspace.site) if destination.reference else None
    with open_built_layout(image, compression, workspace) as folder:
        parts = LayoutParts.read(folder)
        if push and destination.reference:
            made = publish_to_registry(parts, destination.reference, push, reporter, move=move)
            blobs, size, present = made.sent, made.sent_bytes, made.present
            start = f"docker://{made.reference}"
        else:
            assert destination.folder is not None
            reporter.start("publish", f"publishing to {destination}: {len(parts.blobs)} blobs")
            try:
                blobs, size = publish_to_folder(
                    parts, destination.folder, destination.tag, arch, move=move, report=reporter.info
                )
            finally:
                reporter.finish("publish")
            present, start = len(parts.blobs) + 1 - blobs, str(destination)
    data = {
        "image": image.plan.image,
        "reference": str(destination),
        "digest": parts.digest,
        "sent": blobs,
        "sent_bytes": size,
        "present": present,
    }
    text = (
        f"{destination}\n  digest:   {parts.digest}\n"
        f"  sent:     {counted(blobs, 'blob')}, {amount(size)}; {counted(present, 'blob')} there already\n"
        f"  use:      envbuild export {start} --to squashfs"
    )
    return Result(data, text)

