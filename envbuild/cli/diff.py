"""``envbuild diff``: the changes from one image to another."""

from __future__ import annotations

from typing import Annotated

import typer

from envbuild.cli.options import Json, Platform, complete_image, show

SIDE = "A squashfs file, a spec's name or path, or docker://…, oci:DIR."


def diff_command(
    a: Annotated[str, typer.Argument(metavar="A", help=SIDE, autocompletion=complete_image)],
    b: Annotated[str, typer.Argument(metavar="B", help=SIDE, autocompletion=complete_image)],
    files: Annotated[bool, typer.Option("--files", help="List every path and package, not only the first.")] = False,
    platform: Platform = "",
    as_json: Json = False,
) -> None:
    """Show what changed from image A to image B: components, packages, environment, files.

    A name means its built squashfs file, or its lock if the image is not built; then files are not compared.
    Compression does not count as a difference.

    Of a published image (docker://REGISTRY/REPOSITORY:TAG, oci:DIR:TAG) no layer is fetched: components, packages,
    environment, spec and layers are compared, and no files.

    Exit codes as diff: 0 equal, 1 different; a higher one is an error.
    """
    from envbuild.oci.sources.kinds import is_published
    from envbuild.spec.workspace import read_workspace

    if is_published(a) or is_published(b):
        from envbuild.publish.diff_remote import diff_remote

        result = diff_remote(a, b, read_workspace(), platform)
    else:
        from envbuild.verify.contents.diff import diff_images
        from envbuild.verify.contents.squashfs_path import find_squashfs_file

        workspace = read_workspace(names=[side for side in (a, b) if not find_squashfs_file(side)])
        result = diff_images(a, b, workspace, files=files)
    show(result.data, as_json, result.text)
    raise typer.Exit(0 if result.data["equal"] else 1)
