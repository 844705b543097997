"""The tag of an image of the project in a registry, compared with the image as it is built here: who may write the tag
decides what nodes start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from envbuild.core.errors import EnvbuildError
from envbuild.core.shell import shell_word
from envbuild.launch.model import LaunchImage
from envbuild.spec.workspace import Workspace

if TYPE_CHECKING:  # imported by the function: few launches ask a registry
    from envbuild.publish.remote_image import ImageDocument, RemoteImage


def check_tag(image: LaunchImage, workspace: Workspace, *, by_tag: bool = False) -> str:
    """Return the digest (``sha256:…``) that the reference of an image of the project names, which must be the image as
    it is built here: its configuration, its squashfs file, if that is published, and its layers. These are read unless
    this user sent or compared them. A squashfs file that was published alone must be what this envbuild would publish:
    enroot would unpack any blobs of an artifact as layers. `by_tag`: jobs name the tag, for an enroot that does not
    pull by digest. Raises InputError, EnvbuildError."""
    from envbuild.export.built_image import load_built_image
    from envbuild.oci.document import Part
    from envbuild.oci.manifest import parse_descriptor
    from envbuild.oci.sources.open import open_source
    from envbuild.oci.sources.platform import Platform
    from envbuild.publish.binding import read_binding
    from envbuild.publish.find_squashfs import find_squashfs
    from envbuild.publish.proved_layers import prove_blobs
    from envbuild.publish.publish_source import provider_of
    from envbuild.publish.pull import transfer_of
    from envbuild.publish.remote_blob import read_document
    from envbuild.publish.remote_image import open_remote
    from envbuild.publish.squashfs_artifact import lone_digest
    from envbuild.publish.squashfs_document import release_of

    remote = open_remote(image.reference, workspace.site)
    assert remote
    document = remote.find(Platform.of(image.arch))
    other = EnvbuildError(
        f"{image.reference} is another image than the one that is built here",
        hint=f"envbuild publish {shell_word(image.typed)} --move",
    )
    transfer = transfer_of(remote, workspace)
    found = find_squashfs(remote, document, bound=False, transfer=transfer)
    named = found is not None and found.artifact == document.digest  # not any manifest with an artifactType
    alone = named and document.value.get("subject") is None
    config = document.value.get("config")
    if by_tag:
        check_first_entry(remote, document, image.arch)
    if not alone and not (isinstance(config, Mapping) and config.get("digest") == image.configuration):
        raise other
    files = {f"sha256:{file}" for file in (read_binding(document.value).file, found and found.document.sha256) if file}
    if files - {image.sha256}:  # the importer of pyxis starts the file
        raise other
    if found and alone:
        content = read_document(remote, transfer, found.description, found.sizes[found.description])
        if lone_digest(load_built_image(image.typed, workspace), workspace, release_of(content)) != document.digest:
            raise EnvbuildError(
                f"{image.reference} states the squashfs file of the image, and was published with other blobs",
                hint=f"envbuild publish {shell_word(image.typed)} --squashfs-only --move",
            )
        return document.digest
    place, kinds = remote.pin(document.digest), dict[str, str]()
    with open_source(place, workspace.site, workspace.store, image.arch, alone=True) as source:  # the manifest is sound
        for blob in map(parse_descriptor, Part(document.value).part("layers").parts()):
            digest = f"sha256:{blob.digest}"
            kinds[digest] = blob.kind if kinds.get(digest, blob.kind) == blob.kind else ""
        prove_blobs(source, kinds, provider_of(place), workspace.store, workspace.reporter)
    return document.digest


def check_first_entry(remote: RemoteImage, document: ImageDocument, arch: str) -> None:
    """Raise EnvbuildError where enroot before 4 starts another manifest of an index than the `document` that was taken
    from it: the first one of the architecture, for any system and variant, and none of an index in the index (its
    src/docker.sh: ``select(.platform.architecture == …)``)."""
    from envbuild.oci.manifest import list_index

    for index in document.above[:1]:
        listed = list_index(remote.read(index).value, remote.name)
        own = (item for item in listed if item.part("platform").optional("architecture").value == arch)
        first = next((item.part("digest").value for item in own), "")
        if first != document.digest:
            raise EnvbuildError(
                f"{remote.name} is an index, of which enroot before 4 takes another entry than the image for {arch}",
                hint="publish the image under a tag of its own, or start it with enroot 4 and its release in site.yaml",
            )
