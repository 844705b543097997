"""``envbuild show``: an image of the project, or a squashfs file."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from envbuild.cli.options import Json, complete_image, show


def show_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A spec's name or path, or any squashfs file.", autocompletion=complete_image
        ),
    ],
    cat: Annotated[
        str, typer.Option("--cat", metavar="PATH", help="Write one file of a squashfs file to stdout.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Show an image: layers, versions and units with their state. Without a lock: what its spec requires, which
    versions are picked, and where the lock would take its inputs from.

    For any squashfs file: its origin, how it starts and what it contains. It is read in place: nothing is mounted or
    run.
    """
    from envbuild.cli.show_image import show_image
    from envbuild.spec.workspace import read_workspace

    if cat:
        from envbuild.cli.show_file import cat_file

        cat_file(name, cat, sys.stdout.buffer)
        return
    result = show_image(name, read_workspace())
    show(result.data, as_json, result.text)
