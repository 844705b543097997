"""The caches of which the units of an image were taken, judged before the image or its units are signed.

Every user who can write a cache without keys decides what is in its units, and those who list the key of a signer do
not trust these users.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from envbuild.core.errors import SignatureError
from envbuild.core.shell import shell_word
from envbuild.export.base_caches import caches_below
from envbuild.net.unit_caches import names_without_keys

if TYPE_CHECKING:
    from envbuild.export.built_image import BuiltImage
    from envbuild.spec.workspace import Workspace


def check_signing_units(image: BuiltImage, workspace: Workspace) -> None:
    """Check that no unit of an image, or of the images of the project below it, is from a cache without keys, or was
    built on such a unit. Raises SignatureError."""
    name, settings = image.record.image, workspace.site.caches
    used = {name: image.record.caches, **caches_below(image.resolution, image.lock, workspace, image.record)}
    unsigned = {built: found for built, caches in used.items() if (found := names_without_keys(caches, settings))}
    for built, caches in unsigned.items():
        raise SignatureError(
            f"{name} cannot be signed: units of {built} are from a cache that needs no signature: {', '.join(caches)}",
            hint=" && ".join(build_commands(list(used), unsigned)),
        )


def build_commands(images: Sequence[str], unsigned: Collection[str]) -> Iterator[str]:
    """Yield the commands that build the `unsigned` of `images` without caches, and those that are based on them again.
    images: each is based on the next one."""
    below = False
    for name in map(shell_word, reversed(images)):
        if below:
            yield f"envbuild lock {name}"
        if name in unsigned or below:
            yield f"envbuild make {name}{' --no-cache' if name in unsigned else ''}"
            below = True
