"""Artifacts that are added to an image which is published already, in a registry or a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envbuild.core.errors import PublishError
from envbuild.core.shell import shell_word
from envbuild.core.store.json_files import write_atomic
from envbuild.net.failures import UnreachableError
from envbuild.net.registry.media_types import OCI
from envbuild.net.registry.push import Push
from envbuild.net.registry.reference import Reference
from envbuild.publish.folder import copy_blob, open_layout, write_blob
from envbuild.publish.layout_artifacts import list_artifacts, without_artifacts
from envbuild.publish.layout_index import new_index, read_index
from envbuild.publish.referrers import push_artifact
from envbuild.publish.registry import list_new_blobs, open_push, push_blobs, refused_error
from envbuild.publish.remote_image import RegistryImage, RemoteImage
from envbuild.publish.squashfs_artifact import Artifact
from envbuild.spec.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Attachment:
    """The open place of a published image: a `push` to its registry, or its `folder`."""

    workspace: Workspace
    push: Push | None = None
    reference: Reference | None = None
    folder: Path | None = None

    @classmethod
    def open(cls, image: RemoteImage, workspace: Workspace) -> Attachment:
        """Return the place of an image. Raises PublishError if its registry does not answer or requires a login."""
        if isinstance(image, RegistryImage):
            reference = image.repository.reference
            return cls(workspace, open_push(reference, workspace.site), reference)
        return cls(workspace, folder=image.path)

    def add(self, artifacts: Sequence[Artifact], subject: str) -> None:
        """Add artifacts to the image `subject` (``sha256:…``). Others remain. Raises PublishError."""
        if self.folder is not None:
            self._add_to_folder(self.folder, artifacts, subject)
            return
        assert self.push and self.reference
        try:
            push_blobs(list_new_blobs([], True, artifacts, self.push, self.reference), self.push)
            for item in artifacts:
                push_artifact(self.push, item.manifest, item.digest, item.subject, item.descriptor, OCI.manifest)
        except UnreachableError as error:
            raise refused_error(self.reference, error) from None

    def _add_to_folder(self, folder: Path, artifacts: Sequence[Artifact], subject: str) -> None:
        try:
            with open_layout(folder, self.workspace.reporter.info) as (here, blobs):
                index = read_index(here, folder)
                for item in artifacts:
                    for blob in item.blobs:
                        copy_blob(blob, blobs)
                    write_blob(item.manifest, blobs / item.digest.removeprefix("sha256:"))
                lists = list_artifacts(subject, artifacts, index, blobs, folder)
                for digest, content in lists.contents.items():
                    write_blob(content, blobs / digest)
                listed = new_index([*without_artifacts(index, subject, artifacts), *lists.entries], folder)
                write_atomic(here / "index.json", lambda file: file.write(listed))
        except OSError as error:
            raise PublishError(
                f"{folder} cannot be written: {error.strerror or error}", hint=f"ls -ld {shell_word(folder)}"
            ) from None
