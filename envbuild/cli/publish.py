"""``envbuild publish``: a finished image to a registry or a shared folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from envbuild.cli.options import Json, Platform, complete_image, one_of, show
from envbuild.core.errors import SpecError
from envbuild.net.site import COMPRESSIONS

if TYPE_CHECKING:  # --help needs none of them
    from envbuild.core.result import Result
    from envbuild.spec.workspace import Workspace


def publish_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            show_default=False,
            help="A spec's name, docker://NAME:TAG, oci:DIR[:TAG], docker-archive:FILE, or a path.",
            autocompletion=complete_image,
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="REGISTRY/REPOSITORY[:TAG], or a folder: ./DIR, oci:DIR[:TAG]. Default: NAME below `registry` of "
            "site.yaml. Default tag: TARGET-NAME-DATE; of a third-party image its own.",
        ),
    ] = "",
    compression: Annotated[
        str,
        typer.Option(
            help="Of the layers: gzip (for every client), zstd (a large layer and its part of the squashfs "
            "file are sent as one), none. Default: `compression` of site.yaml, or gzip. Layers of a third-party image "
            "remain as they are, unless it is given.",
            autocompletion=one_of(*COMPRESSIONS),
        ),
    ] = "",
    platform: Platform = "",
    index: Annotated[
        str,
        typer.Option(
            metavar="TAG",
            help="Also add the image to this index of the same repository, as the one of its platform: clients choose.",
        ),
    ] = "",
    whole: Annotated[
        bool, typer.Option("--whole", help="Also send the squashfs file as one blob, for clients without envbuild.")
    ] = False,
    squashfs_only: Annotated[
        bool,
        typer.Option(
            "--squashfs-only", help="Send the squashfs file without the OCI image, for envbuild pull and its importer."
        ),
    ] = False,
    sign: Annotated[
        Path | None,
        typer.Option(
            "--sign", metavar="KEY", help="Sign what is published, with a file of `envbuild key new` or of cosign."
        ),
    ] = None,
    move: Annotated[bool, typer.Option("--move", help="Replace a tag that names another image.")] = False,
    as_json: Json = False,
) -> None:
    """Publish an image to a registry or a shared folder: as an OCI image that podman, Docker and enroot pull, and its
    squashfs file as packs, for envbuild pull.

    SOURCE is the name of an image of the project (built and verified first if needed) or a third-party image. Only
    blobs that the repository lacks are sent. The tag is written last, and never moved unless --move is given.

    \b
      envbuild publish h100-ucc --to registry.example/team/images:h100-ucc
      envbuild publish h100-ucc --to oci:/fs/images
      envbuild publish docker://nvcr.io/nvidia/pytorch:25.10-py3 --to registry.example/team/pytorch

    Logins are those of podman, docker and enroot.
    """
    if compression not in ("", *COMPRESSIONS):
        raise SpecError(f"--compression {compression!r} is not known", hint=f"use one of: {', '.join(COMPRESSIONS)}")
    if compression and squashfs_only:
        raise SpecError("--compression is that of the layers, and --squashfs-only sends none", hint="leave out one")
    from envbuild.publish.destination import parse_destination
    from envbuild.publish.publish_source import parse_publishable, publish_source
    from envbuild.spec.workspace import open_workspace

    if to:
        parse_destination(to, "latest")  # a mistake is reported before an image is made
    from envbuild.core.signing.passphrase import open_signer

    signer = open_signer(sign)  # the same
    foreign = parse_publishable(name) is not None
    if platform and not foreign:
        raise SpecError(f"--platform has no meaning for {name}, an image of the project", hint="leave it out")
    options: dict[str, Any] = {
        "compression": compression, "move": move, "whole": whole, "layers": not squashfs_only, "signer": signer,
    }  # fmt: skip
    with open_workspace(names=[name]) as workspace:
        if signer:
            from envbuild.publish.signature_artifacts import check_signing_store

            check_signing_store(workspace.store)  # before an image is made, too
        if foreign:
            result = publish_source(name, to, workspace, platform=platform, index=index, **options)
        else:
            result = publish_project_image(name, to, workspace, index=index, **options)
    show(result.data, as_json, result.text)


def publish_project_image(name: str, to: str, workspace: Workspace, *, index: str, **options: Any) -> Result:
    """Publish an image of the project, which is made first if needed. `options`: of `publish_image`."""
    from envbuild.export.built_image import load_built_image
    from envbuild.make import Options, make
    from envbuild.publish.make_and_share import make_and_share, site_caches
    from envbuild.publish.publish import find_destination, publish_image

    make_and_share(make, name, workspace, Options(caches=site_caches(workspace)))
    image = load_built_image(name, workspace)
    options["compression"] = options["compression"] or workspace.site.compression
    destination = find_destination(to, image, workspace).with_index(index)
    return publish_image(image, destination, workspace, **options)
