"""``envbuild pull``: a published image as the squashfs file that was published with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envbuild.cli.options import Json, OutputPath, Platform, show
from envbuild.core.shell import shell_word


def pull_command(
    reference: Annotated[
        str,
        typer.Argument(
            metavar="IMAGE",
            show_default=False,
            help="REGISTRY/REPOSITORY[:TAG][@sha256:…], oci:DIR[:TAG] or ./DIR.",
        ),
    ],
    output: OutputPath = None,
    platform: Platform = "",
    as_json: Json = False,
) -> None:
    """Fetch a published image as one file for `srun --container-image=…`: the same bytes that `envbuild publish` had.

    Only packs that the store lacks are fetched. No image spec, no root and no subordinate ids are needed. An image that
    was published by another program is converted, as by `envbuild export docker://…`.

    \b
      envbuild pull registry.example/team/images:h100-ucc
      envbuild pull oci:/fs/images:h100-ucc -o /local/h100-ucc.sqsh

    An interrupted pull resumes: run the same command again. Logins are those of podman, docker and enroot.
    """
    from envbuild.export.output_path import Output
    from envbuild.launch.start_line import start_lines
    from envbuild.publish.pull import pull_image
    from envbuild.spec.workspace import open_workspace

    place = None if output is None else Output.of(output)
    with open_workspace() as workspace:
        result = pull_image(reference, place, workspace, platform)
        path, again = Path(result.data["path"]), f"envbuild pull {shell_word(reference)}"
        again += f" --platform {shell_word(platform)}" if platform else ""
        start = start_lines(path, workspace.site, again, chosen=place is not None, width=7)
    here = "" if platform else f"\n  here:   envbuild run {shell_word(path)} -- bash"
    show(result.data, as_json, f"{result.text}\n{start}{here}")
