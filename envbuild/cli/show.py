"""``envbuild show``: an image of the project, or a squashfs file."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from envbuild.cli.options import Json, Platform, complete_image, show


def show_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A spec's name or path, any squashfs file, or docker://…, oci:DIR.",
            autocompletion=complete_image,
        ),
    ],
    cat: Annotated[
        str, typer.Option("--cat", metavar="PATH", help="Write one file of a squashfs file to stdout.")
    ] = "",
    platform: Platform = "",
    as_json: Json = False,
) -> None:
    """Show an image: layers, versions and units with their state. Without a lock: what its spec requires, which
    versions are picked, and where the lock would take its inputs from.

    For any squashfs file: its origin, how it starts and what it contains. It is read in place: nothing is mounted or
    run.

    For a published image (docker://REGISTRY/REPOSITORY:TAG, oci:DIR:TAG): its layers, its signatures, its squashfs
    file, what this store lacks of it, and its spec; with --json also its lock. No layer is fetched.
    """
    from envbuild.cli.show_image import show_image
    from envbuild.oci.sources.kinds import is_published
    from envbuild.spec.workspace import read_workspace

    if cat:
        from envbuild.cli.show_file import cat_file

        cat_file(name, cat, sys.stdout.buffer)
        return
    if is_published(name):
        from envbuild.publish.show_remote import show_remote

        result = show_remote(name, read_workspace(names=[name]), platform)
    else:
        result = show_image(name, read_workspace(names=[name]))
    show(result.data, as_json, result.text)
