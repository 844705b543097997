"""``envbuild fetch``: the inputs of images into the store, or into a folder for an air-gapped site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envbuild.cli.options import Json, Names, show_each


def fetch_command(
    names: Names,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Export them as the mirror of an air-gapped site.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fetch every input of an image into the store, so that a later make needs no network; with --to, into a folder
    that an air-gapped site builds from.

    An image whose inputs are not available does not stop the others; missing inputs of all images are reported at the
    end.
    """
    from envbuild.cli.fetch_inputs import fetch_images
    from envbuild.spec.workspace import open_workspace

    with open_workspace(names=names) as workspace:
        show_each(fetch_images(names, workspace, to), as_json)
