"""What is told of a layer that is not what its image says: first whose fault it is, because that says what to do.

A blob with another digest than the image names was damaged on its way or where it lies: it is to be fetched or saved
again. One with the right digest that is no sound layer all the same was pushed so: fetching it again does not help.
"""

from __future__ import annotations

from envbuild.errors import InputError
from envbuild.oci.source import SourceLayer

PUSHED = "use another image or tag, or have whoever made this one build and push it again"
AGAIN = {
    "docker://": "run the command again; if that does not help, the registry or its mirror holds it damaged: have the "
    "image pushed there again",
    "docker-daemon:": "pull or build the image again, e.g. docker pull NAME",
    "docker-archive:": "save or copy the archive again, e.g. docker save -o FILE NAME",
    "oci:": "fetch or copy the layout again, e.g. skopeo copy docker://NAME:TAG oci:DIR",
}


def damaged(layer: SourceLayer, why: str) -> InputError:
    """The bytes are others than the image names."""
    hints = [hint for prefix, hint in AGAIN.items() if layer.image.startswith(prefix)]
    return InputError(f"{called(layer)} is damaged: {why}", hint=hints[0] if hints else "fetch or save it again")


def pushed_broken(layer: SourceLayer, why: str) -> InputError:
    """The bytes are those that the image names, and no layer."""
    digest = layer.digest or layer.diff_id
    return InputError(
        f"{called(layer)} was pushed broken: it is {digest}, as its image says, but no sound layer: {why}",
        hint=PUSHED,
    )


def called(layer: SourceLayer) -> str:
    return f"{layer.name} of {layer.image}" if layer.image else layer.name
