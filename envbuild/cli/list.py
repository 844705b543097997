"""``envbuild list``: the images of the project and those that ship with envbuild."""

from __future__ import annotations

from typing import Annotated

import typer

from envbuild.cli.options import Json, show


def list_command(
    keys: Annotated[
        bool,
        typer.Option("--keys", help="Print each image's key: a digest of all that decides its content and its checks."),
    ] = False,
    changed: Annotated[
        str,
        typer.Option(
            metavar="COMMIT",
            help="List only images that changed since this commit, branch or tag of git, and the parts that did.",
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """List the images: target, state of the lock, whether the image is built.

    `--changed COMMIT` compares the keys of the images with those at the commit where COMMIT and the current one
    diverge. A comment in a recipe changes no key; a package in the lock, a check and the spec, which is in the image,
    do.
    """
    from envbuild.cli.image_list import list_images
    from envbuild.spec.workspace import read_workspace

    workspace = read_workspace()
    if changed:
        from envbuild.cli.changed_images import changed_images

        result = changed_images(changed, workspace)
    else:
        result = list_images(workspace, keys=keys)
    show(result.data, as_json, result.text)
