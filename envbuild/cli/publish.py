"""``envbuild publish``: a finished image to a registry or a shared folder."""

from __future__ import annotations

from typing import Annotated

import typer

from envbuild.cli.options import Json, Name, one_of, show
from envbuild.core.errors import SpecError

COMPRESSIONS = ("gzip", "zstd", "none")


def publish_command(
    name: Name,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="REGISTRY/REPOSITORY[:TAG], or a folder: ./DIR, oci:DIR[:TAG]. Default: NAME below `registry` of "
            "site.yaml. Default tag: TARGET-NAME-DATE.",
        ),
    ] = "",
    compression: Annotated[
        str,
        typer.Option(
            help="Of the layers: gzip (default, for every client), zstd, none.", autocompletion=one_of(*COMPRESSIONS)
        ),
    ] = "gzip",
    whole: Annotated[
        bool, typer.Option("--whole", help="Also send the squashfs file as one blob, for clients without envbuild.")
    ] = False,
    move: Annotated[bool, typer.Option("--move", help="Replace a tag that names another image.")] = False,
    as_json: Json = False,
) -> None:
    """Publish an image of the project (built and verified first if needed) to a registry or a shared folder: as an OCI
    image that podman, Docker and enroot pull, and its squashfs file as packs, for envbuild pull.

    Only blobs that the repository lacks are sent. The tag is written last, and never moved unless --move is given.

    \b
      envbuild publish h100-ucc --to registry.example/team/images:h100-ucc
      envbuild publish h100-ucc --to oci:/fs/images

    Logins are those of docker login.
    """
    if compression not in COMPRESSIONS:
        raise SpecError(f"--compression {compression!r} is not known", hint=f"use one of: {', '.join(COMPRESSIONS)}")
    from envbuild.export.built_image import load_built_image
    from envbuild.make import Options, make
    from envbuild.publish.destination import parse_destination
    from envbuild.publish.make_and_share import make_and_share, site_caches
    from envbuild.publish.publish import find_destination, publish_image
    from envbuild.spec.workspace import open_workspace

    if to:
        parse_destination(to, "latest")  # a mistake is reported before an image is made
    with open_workspace() as workspace:
        make_and_share(make, name, workspace, Options(caches=site_caches(workspace)))
        image = load_built_image(name, workspace)
        destination = find_destination(to, image, workspace)
        result = publish_image(image, destination, workspace, compression=compression, move=move, whole=whole)
    show(result.data, as_json, result.text)
