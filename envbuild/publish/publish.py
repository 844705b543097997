"""``envbuild publish``: an image of the project to a registry or a folder, by digest."""

from __future__ import annotations

from pathlib import Path

from envbuild.core.errors import SpecError
from envbuild.core.result import Result
from envbuild.core.text import amount, counted
from envbuild.export.built_image import BuiltImage
from envbuild.export.built_layout import open_built_layout
from envbuild.net.failures import UnreachableError
from envbuild.net.registry.push import Push
from envbuild.publish.binding import make_annotations
from envbuild.publish.destination import Destination, default_tag, parse_destination
from envbuild.publish.folder import blob_in_folder, check_folder, publish_to_folder
from envbuild.publish.known_repositories import read_repositories, record_repository
from envbuild.publish.layout_parts import LayoutParts
from envbuild.publish.published_texts import list_texts
from envbuild.publish.registry import count_digests, open_push, publish_to_registry, refused_error
from envbuild.publish.squashfs_artifact import project_artifacts
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


def has_blob(push: Push | None, folder: Path | None, digest: str, size: int) -> bool:
    """Return whether a registry or a layout has a blob (``sha256:…``). Raises UnreachableError."""
    if push:
        name = digest.removeprefix("sha256:")
        return push.has_blob(name) or push.mount(name)
    return folder is not None and blob_in_folder(folder, digest.removeprefix("sha256:"), size)


def publish_image(
    image: BuiltImage,
    destination: Destination,
    workspace: Workspace,
    *,
    compression: str,
    move: bool,
    whole: bool = False,
) -> Result:
    """Publish a built image. `compression`: of the layers; `move`: a tag that names another image may be replaced;
    `whole`: the squashfs file is also published as one blob.

    Raises PublishError, VerifyError.
    """
    reporter, arch = workspace.reporter, image.plan.config.architecture
    # The registry is contacted, and the folder checked, before the layers are compressed, which takes longer.
    push = open_push(destination.reference, workspace.site) if destination.reference else None
    if push:
        push.known = read_repositories(workspace.store, push.at)
    if destination.folder is not None:
        check_folder(destination.folder)

    def present(digest: str, size: int) -> bool:
        try:
            return has_blob(push, destination.folder, digest, size)
        except UnreachableError as error:
            assert destination.reference
            raise refused_error(destination.reference, error) from None

    with open_built_layout(image, compression, workspace, present) as folder, workspace.store.workdir() as work:
        texts = list_texts(image, workspace)
        parts = LayoutParts.read(folder).annotate(make_annotations(image.record.sha256, texts))
        artifacts = project_artifacts(image, parts.subject, texts, workspace, work, whole=whole)
        if push and destination.reference:
            made = publish_to_registry(parts, destination.reference, push, reporter, move=move, artifacts=artifacts)
            blobs, size, there = made.sent, made.sent_bytes, made.present
            found = {part.digest for part in parts.blobs} | {blob.digest for item in artifacts for blob in item.blobs}
            record_repository(workspace.store, push.at, found)
            start = made.reference
        else:
            assert destination.folder is not None
            reporter.start("publish", f"publishing to {destination}: {len(parts.blobs)} blobs")
            try:
                blobs, size = publish_to_folder(
                    parts,
                    destination.folder,
                    destination.tag,
                    arch,
                    move=move,
                    report=reporter.info,
                    artifacts=artifacts,
                )
            finally:
                reporter.finish("publish")
            there, start = count_digests(parts, artifacts) + 1 + len(artifacts) - blobs, str(destination)
    data = {
        "image": image.plan.image,
        "reference": str(destination),
        "digest": parts.digest,
        "squashfs": artifacts[0].digest,
        "sha256": image.record.sha256,
        "sent": blobs,
        "sent_bytes": size,
        "present": there,
    }
    text = (
        f"{destination}\n  digest:   {parts.digest}\n"
        f"  sent:     {counted(blobs, 'blob')}, {amount(size)}; {counted(there, 'blob')} there already\n"
        f"  squashfs: {artifacts[0].digest}\n"
        f"  use:      envbuild pull {start}"
    )
    return Result(data, text)
