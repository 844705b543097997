"""``envbuild list``: the images of the project and those that ship with envbuild."""

from __future__ import annotations

from envbuild.cli.options import Json, show


def list_command(as_json: Json = False) -> None:
    """List the images: target, state of the lock, whether the image is built."""
    from envbuild.cli.image_list import list_images
    from envbuild.spec.workspace import read_workspace

    result = list_images(read_workspace())
    show(result.data, as_json, result.text)
