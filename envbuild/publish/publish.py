"""``envbuild publish NAME``: an image of the project to a registry or a folder, by digest."""

from __future__ import annotations

from envbuild.core.errors import SpecError
from envbuild.core.result import Result
from envbuild.export.built_image import BuiltImage
from envbuild.export.built_layout import open_built_layout
from envbuild.publish.binding import make_annotations
from envbuild.publish.destination import Destination, default_tag, parse_destination
from envbuild.publish.image_parts import ImageParts
from envbuild.publish.published_texts import list_texts
from envbuild.publish.squashfs_artifact import project_artifacts
from envbuild.publish.target import Target
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
    image: BuiltImage,
    destination: Destination,
    workspace: Workspace,
    *,
    compression: str,
    move: bool,
    whole: bool = False,
) -> Result:
    """Publish a built image. `compression`: of the layers (empty: gzip); `move`: a tag that names another image may be
    replaced; `whole`: the squashfs file is also published as one blob.

    Raises PublishError, VerifyError.
    """
    target = Target.open(destination, workspace)
    with (
        open_built_layout(image, compression or "gzip", workspace, target.has_blob) as folder,
        workspace.store.workdir() as work,
    ):
        texts = list_texts(image, workspace)
        parts = ImageParts.read(folder).annotate(make_annotations(image.record.sha256, texts))
        artifacts = project_artifacts(image, parts.subject, texts, workspace, work, whole=whole)
        return target.send(image.plan.image, parts, artifacts, image.record.sha256, move=move)
