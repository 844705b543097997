"""``envbuild origins``: the place that each origin is taken from on this machine, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from envbuild.cli.options import Json, complete_image, show


def origins_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME…]",
            help="Images; without any, all images and all public homes.",
            autocompletion=complete_image,
        ),
    ] = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Send each place one request, and report within 10 s whether it answers.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List where the inputs of images come from on this machine, and why.

    An origin (apt:nvidia-cuda/ubuntu2204/x86_64) names an input without a host. The first of these that knows it
    decides: mirrors of site.yaml (site), apt's sources and pip's configuration (host), the vendor's address that
    envbuild ships (public). 'none' needs a line in site.yaml, which is printed.

    Exit codes: 0, or 10 if --probe finds a place that does not answer. Examples:  envbuild origins h100-ucc;
    envbuild origins --probe azure-ndv4-opt.
    """
    from envbuild.cli.origin_list import list_origins
    from envbuild.spec.workspace import read_workspace

    result, silent = list_origins(names or [], read_workspace(names=names or []), probe=probe)
    show(result.data, as_json, result.text)
    if silent:
        raise typer.Exit(10)
