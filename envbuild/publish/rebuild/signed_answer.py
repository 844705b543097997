"""The answer of a rebuild as a signed statement of a second builder, attached to the image that was rebuilt."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild.core.errors import SpecError
from envbuild.core.signing.key_file import Signer
from envbuild.core.signing.statement import Subject, encode_statement
from envbuild.oci.sources.kinds import is_published
from envbuild.publish.attach import Attachment
from envbuild.publish.remote_image import RemoteImage, open_remote
from envbuild.publish.signature_artifacts import bundle_artifact
from envbuild.publish.signature_check import REBUILD
from envbuild.spec.workspace import Workspace


@dataclass(frozen=True, slots=True)
class SignedAnswer:
    """The place of a published image, which is open for its answer."""

    image: RemoteImage
    place: Attachment
    signer: Signer

    @classmethod
    def open(cls, name: str, signer: Signer, workspace: Workspace) -> SignedAnswer:
        """Return the place of an image, before a build takes its time. Raises SpecError for an image that is not
        published, PublishError for a registry that takes nothing."""
        image = open_remote(name, workspace.site) if is_published(name) else None
        if image is None:
            raise SpecError(
                f"--sign attaches the answer to a published image, and {name[:200]} is not one",
                hint="name it as docker://REGISTRY/NAME:TAG or oci:DIR:TAG, or keep the answer: --json > rebuild.json",
            )
        return cls(image, Attachment.open(image, workspace), signer)

    def attach(self, answer: Mapping[str, Any]) -> str:
        """Sign and attach an answer (`rebuild_document`), of equal parts or not; return the digest (``sha256:…``) of
        its artifact. Raises PublishError, InputError."""
        subject = answer["subject"]
        # The manifest alone: the digest of the squashfs file is what the image states, and may be that of anything.
        manifest = Subject(subject["image"], subject["digest"].removeprefix("sha256:"))
        statement = encode_statement([manifest], REBUILD, answer)
        found = self.image.read(subject["digest"])
        with tempfile.TemporaryDirectory() as folder:
            made = bundle_artifact(REBUILD, statement, self.signer, found.descriptor, Path(folder, "answer"))
            self.place.add([made], found.digest)
        return made.digest
