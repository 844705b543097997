"""The place that an image is published to: it is reached before layers are compressed, which takes longer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from envbuild.core.result import Result
from envbuild.core.signing.envelope import BUNDLE
from envbuild.core.text import amount, counted
from envbuild.net.failures import UnreachableError
from envbuild.net.registry.push import Push
from envbuild.publish.destination import Destination
from envbuild.publish.folder import check_folder, is_blob, publish_to_folder
from envbuild.publish.image_parts import ImageParts
from envbuild.publish.known_repositories import ALONE, read_repositories, record_repository
from envbuild.publish.registry import count_digests, open_push, publish_to_registry, refused_error
from envbuild.publish.squashfs_artifact import Artifact
from envbuild.spec.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Target:
    """The open place of a destination: a `push` to a registry; None: a folder."""

    destination: Destination
    push: Push | None
    workspace: Workspace

    @classmethod
    def open(cls, destination: Destination, workspace: Workspace) -> Target:
        """Return the place of a destination. Raises PublishError if it cannot be reached, or is something else."""
        if destination.folder is not None:
            check_folder(destination.folder)
        if destination.reference is None:
            return cls(destination, None, workspace)
        push = open_push(destination.reference, workspace.site)
        push.known = read_repositories(workspace.store, push.at)
        return cls(destination, push, workspace)

    def has_blob(self, digest: str, size: int) -> bool:
        """Return whether the place has a blob (``sha256:…``), or could take it from elsewhere. Raises PublishError."""
        name, folder = digest.removeprefix("sha256:"), self.destination.folder
        if self.push is None:
            return folder is not None and is_blob(folder / "blobs/sha256" / name, name, size)
        try:
            return self.push.has_blob(name) or self.push.mount(name)
        except UnreachableError as error:
            assert self.destination.reference
            raise refused_error(self.destination.reference, error) from None

    def send(self, name: str, parts: ImageParts, artifacts: Sequence[Artifact], sha256: str, *, move: bool) -> Result:
        """Publish an image and its artifacts; return the answer of the command. `sha256`: of its squashfs file. The
        image can be the first artifact itself (`ImageParts.of_artifact`).

        Raises PublishError, and what reading the parts raises.
        """
        destination, reporter = self.destination, self.workspace.reporter
        squashfs = artifacts[0].digest
        artifacts = [item for item in artifacts if item.digest != parts.digest]
        if self.push and destination.reference:
            made = publish_to_registry(
                parts,
                destination.reference,
                self.push,
                reporter,
                move=move,
                artifacts=artifacts,
                index=destination.index,
            )
            blobs, size, there = made.sent, made.sent_bytes, made.present
            found = {part.digest for part in parts.blobs} | {blob.digest for item in artifacts for blob in item.blobs}
            configuration = ALONE if parts.digest == squashfs else f"sha256:{parts.blobs[0].digest}"
            record_repository(self.workspace.store, self.push.at, found, destination.reference.tag, configuration)
        else:
            assert destination.folder is not None
            total = count_digests(parts, artifacts) + 1 + len(artifacts)  # the manifests are blobs of a folder, too
            reporter.start("publish", f"publishing to {destination}: {counted(total, 'blob')}")
            try:
                blobs, size = publish_to_folder(
                    parts,
                    destination.folder,
                    destination.tag,
                    move=move,
                    report=reporter.info,
                    artifacts=artifacts,
                    platforms=destination.index,
                )
            finally:
                reporter.finish("publish")
            there = total - blobs
        data: dict[str, Any] = {
            "image": name,
            "reference": str(destination),
            "index": destination.index_name,
            "digest": parts.digest,
            "squashfs": squashfs,
            "signed": any(item.kind == BUNDLE for item in artifacts),
            "sha256": sha256,
            "sent": blobs,
            "sent_bytes": size,
            "present": there,
        }
        index = f"  index:    {destination.index_name}\n" if destination.index else ""
        signed = "  signed:   yes\n" if data["signed"] else ""
        text = (
            f"{destination}\n  digest:   {parts.digest}\n"
            f"  sent:     {counted(blobs, 'blob')}, {amount(size)}; {counted(there, 'blob')} there already\n"
            f"  squashfs: {squashfs}\n{signed}{index}"
            f"  use:      envbuild pull {destination.index_name or destination}"
        )
        return Result(data, text)
