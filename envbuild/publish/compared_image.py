"""One side of ``envbuild diff`` with published images: what an image states about itself, in any place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envbuild.publish.published_image import PublishedImage, PublishedLayer
from envbuild.spec.workspace import Workspace
from envbuild.verify.contents.diff import Side, find_side, read_side_alone
from envbuild.verify.contents.metadata import ImageMetadata, read_image_texts


@dataclass(frozen=True, slots=True)
class ComparedImage:
    """One of the two images. `layers` (bottom first) and `spec` are None where they are unknown."""

    side: Side
    layers: Sequence[PublishedLayer] | None
    spec: str | None
    published: PublishedImage | None = None

    @property
    def metadata(self) -> ImageMetadata | None:
        return self.side.metadata


def published_side(image: PublishedImage) -> ComparedImage:
    """Return a published image as a side."""
    metadata = image.metadata()
    side = Side(image.reference, None, metadata.lock, metadata)
    return ComparedImage(side, image.layers, image.spec or None, image)


def local_side(name: str, workspace: Workspace) -> ComparedImage:
    """Return an image of the project, or a squashfs file, as a side."""
    side = read_side_alone(find_side(name, workspace))
    if not side.file or not side.metadata:
        from envbuild.lock.resolve import resolve_image

        return ComparedImage(side, None, resolve_image(name, workspace).spec.text)
    spec = read_image_texts(side.file, "spec.yaml").get("spec.yaml")
    image = side.metadata.export.get("image")
    found = image.get("layers") if isinstance(image, dict) else None
    layers = [PublishedLayer("", 0, str(item), "") for item in found] if isinstance(found, list) else None
    return ComparedImage(side, layers, spec)
