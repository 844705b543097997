"""``envbuild diff``: the changes from one image to another."""

from __future__ import annotations

from typing import Annotated

import typer

from envbuild.cli.options import Json, complete_image, show

SIDE = "A squashfs file, or a spec's name or path."


def diff_command(
    a: Annotated[str, typer.Argument(metavar="A", help=SIDE, autocompletion=complete_image)],
    b: Annotated[str, typer.Argument(metavar="B", help=SIDE, autocompletion=complete_image)],
    files: Annotated[bool, typer.Option("--files", help="List every path and package, not only the first.")] = False,
    as_json: Json = False,
) -> None:
    """Show what changed from image A to image B: components, packages, environment, files.

    A name means its built squashfs file, or its lock if the image is not built; then files are not compared.
    Compression does not count as a difference.

    Exit codes as diff: 0 equal, 1 different; a higher one is an error.
    """
    from envbuild.spec.workspace import read_workspace
    from envbuild.verify.contents.diff import diff_images

    result = diff_images(a, b, read_workspace(), files=files)
    show(result.data, as_json, result.text)
    raise typer.Exit(0 if result.data["equal"] else 1)
