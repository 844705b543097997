"""``envbuild run``: a command in a finished image on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from envbuild.cli.options import Name


def run_command(
    name: Name,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- CMD…", help="The command; default: the image's own.")
    ] = None,
    network: Annotated[bool, typer.Option("--network", help="Share this machine's network.")] = False,
    bind: Annotated[
        list[str],
        typer.Option(
            "--bind", metavar="SRC[:DST[:ro]]", help="Mount a folder in the image, with :ro read-only; may be repeated."
        ),
    ] = [],  # noqa: B006
    writable_dev: Annotated[
        bool,
        typer.Option(
            "--writable-dev",
            help="Let the command write into the project folders (dev: of the spec), and so into what you start there: "
            "only for images that you trust.",
        ),
    ] = False,
    live: Annotated[
        bool,
        typer.Option("--live", help="Lock and build what changed, and run in the layers; write no squashfs file."),
    ] = False,
) -> None:
    """Run a command in an image on this machine, in the same sandbox that built it. NAME may be a squashfs file.

    Changes are discarded, except in folders mounted with --bind. Project folders (dev: of the spec) are read-only,
    unless --writable-dev: an edit of yours is seen at once. Without a current file of the image, its layers are built
    and the command runs in them. To try an edit of the spec, which --live also locks:

    \b
      envbuild run NAME --live -- python -c "import torch"
    """
    from envbuild.cli.run_image import run_image
    from envbuild.spec.workspace import open_workspace

    with open_workspace(names=[name]) as workspace:
        code = run_image(name, command or [], workspace, network=network, binds=bind, live=live, writable=writable_dev)
    raise typer.Exit(code)
