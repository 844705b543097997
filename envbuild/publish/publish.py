"""``envbuild publish NAME``: an image of the project to a registry or a folder, by digest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild.core.errors import SpecError
from envbuild.core.result import Result
from envbuild.core.signing.statement import Subject
from envbuild.export.built_image import BuiltImage
from envbuild.export.built_layout import open_built_layout
from envbuild.publish.attached_documents import built_documents, document_artifacts
from envbuild.publish.binding import make_annotations
from envbuild.publish.destination import Destination, default_tag, parse_destination
from envbuild.publish.image_parts import ImageParts
from envbuild.publish.published_texts import list_texts
from envbuild.publish.shared_layers import share_layers
from envbuild.publish.signing_units import check_signing_units
from envbuild.publish.squashfs_artifact import Artifact, lone_artifacts, project_artifacts
from envbuild.publish.target import Target
from envbuild.spec.workspace import Workspace

if TYPE_CHECKING:
    from envbuild.core.signing.key_file import Signer
    from envbuild.verify.provenance import ImageDocuments


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
    layers: bool = True,
    signer: Signer | None = None,
) -> Result:
    """Publish a built image. `compression`: of the layers (empty: gzip); `move`: a tag that names another image may be
    replaced; `whole`: the squashfs file is also published as one blob; `layers`: the OCI image is published, too;
    `signer`: the key that signs it.

    Raises SignatureError, PublishError, VerifyError, ConflictError, UnknownError.
    """
    if signer:
        check_signing_units(image, workspace)
    target = Target.open(destination, workspace)
    documents = built_documents(image, workspace)
    if not layers:
        return publish_squashfs(image, documents, target, workspace, move=move, whole=whole, signer=signer)
    shared_layers = share_layers(image, compression, workspace)
    with (
        open_built_layout(image, compression or "gzip", workspace, target.has_blob, shared_layers.encode) as folder,
        workspace.store.workdir() as work,
    ):
        texts = list_texts(image, workspace)
        parts = ImageParts.read(folder).annotate(make_annotations(image.record.sha256, texts))
        shared = shared_layers.find(image.layers, parts.layers_in(folder))
        artifacts = project_artifacts(image, parts.subject, texts, workspace, work, whole=whole, shared=shared)
        artifacts += attach_documents(image, documents, parts.subject, artifacts[0], destination, work, signer)
        return target.send(image.plan.image, parts, artifacts, image.record.sha256, move=move)


def attach_documents(
    image: BuiltImage,
    documents: ImageDocuments,
    subject: dict[str, Any],
    packs: Artifact,
    destination: Destination,
    work: Path,
    signer: Signer | None,
) -> list[Artifact]:
    """Return the artifacts with provenance, SBOM and evidence of what is published: the image or artifact `subject`;
    and its signatures.

    packs: the artifact with the squashfs file."""
    name = image.plan.image
    digests = {subject["digest"]: destination.name(name), packs.digest: f"{name}.packs"}
    subjects = [Subject(title, digest.removeprefix("sha256:")) for digest, title in digests.items()]
    subjects.append(Subject(f"{name}.sqsh", image.record.sha256))
    made = document_artifacts(documents, subjects, subject, name, work)
    if signer:
        from envbuild.publish.signature_artifacts import signature_artifacts

        made += signature_artifacts(signer, destination.name(name), subject, work, documents, subjects)
    return made


def publish_squashfs(
    image: BuiltImage,
    documents: ImageDocuments,
    target: Target,
    workspace: Workspace,
    *,
    move: bool,
    whole: bool,
    signer: Signer | None,
) -> Result:
    """Publish the squashfs file of a built image under its tag: no layer is compressed or sent."""
    plan = image.plan
    with workspace.store.workdir() as work:
        artifacts = lone_artifacts(image, workspace, work, whole=whole)
        packs = artifacts[0]
        artifacts += attach_documents(image, documents, packs.descriptor, packs, target.destination, work, signer)
        platform = {"architecture": plan.config.architecture, "os": "linux"}
        parts = ImageParts.of_artifact(artifacts[0], platform)
        return target.send(plan.image, parts, artifacts, image.record.sha256, move=move)
