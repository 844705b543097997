"""Small documents that are published beside the packs of an image: its spec, its lock and its resolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbuild.core.errors import SpecError
from envbuild.publish import artifact_types as types

if TYPE_CHECKING:
    from envbuild.export.built_image import BuiltImage
    from envbuild.spec.workspace import Workspace


@dataclass(frozen=True, slots=True)
class PublishedText:
    """A document: media type, file name and content."""

    kind: str
    title: str
    content: bytes


def list_texts(image: BuiltImage, workspace: Workspace) -> list[PublishedText]:
    """Return the documents of an image of the project. Raises SpecError for a spec that changed meanwhile."""
    from envbuild.build.plan.embedded_documents import documents

    spec, name = image.resolution.spec, image.plan.image
    lock, content = workspace.project.lock_path(spec.path), spec.path.read_bytes()
    if not is_own_spec(content.decode(errors="replace"), spec.text):
        raise SpecError(f"{spec.path} was changed while it was read", hint="run the command again")
    resolution = documents(image.resolution, image.lock)["resolution.json"]
    return [
        PublishedText(types.SPEC, spec.path.name, content),
        PublishedText(types.LOCK, lock.name, image.key.lock),
        PublishedText(types.RESOLUTION, f"{name}.resolution.json", resolution.encode()),
    ]


def is_own_spec(text: str, whole: str) -> bool:
    """Return whether a text is a spec whose text with those that it extends is `whole` (`envbuild.spec.spec_draft`)."""
    text = text if text.endswith("\n") else f"{text}\n"
    return bool(text.strip()) and (text == whole or whole.endswith(f"\n---\n{text}"))


def configuration_text(name: str, content: bytes) -> PublishedText:
    """Return the configuration of an image as a document, for an image that is published without its layers."""
    return PublishedText(types.CONFIG, f"{name}.config.json", content)
