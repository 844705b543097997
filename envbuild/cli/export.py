"""``envbuild export``: an image of the project or a third-party image as a file, a layout, or in the Docker Engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from envbuild.cli.options import Json, OutputPath, Platform, complete_image, one_of, show
from envbuild.core.errors import SpecError
from envbuild.core.shell import shell_word
from envbuild.export.formats import FORMATS, describe_compressions, describe_formats
from envbuild.oci.sources.kinds import SOURCES, describe_sources

if TYPE_CHECKING:  # --help needs none of them
    from envbuild.core.result import Result
    from envbuild.export.options import ExportOptions
    from envbuild.spec.workspace import Workspace

EXPORT = f"""Write an image as one file for `srun --container-image=…`: an image of the project or a third-party image.

SOURCE is the name of an image of the project (built first if needed), or:

\b
{describe_sources()}

Layers are compressed once and cached in the store: the next image that has them only copies them. The same image
results in the same bytes, from any source and with any number of jobs.

\b
  envbuild export docker://nvcr.io/nvidia/pytorch:25.10-py3 --to squashfs
  envbuild export docker://nvcr.io/nvidia/pytorch:25.10-py3 --to squashfs --platform linux/arm64 -o grace.sqsh
  docker save app:1 -o app.tar && envbuild export ./app.tar --to squashfs -o /fs/images/app.sqsh
  envbuild export docker-daemon:app:1 --to squashfs --compression lz4
  envbuild export cpu-ucx --to oci -o cpu-ucx.oci
  envbuild export --list                      running exports of this store, and those of the last day

On a terminal an export shows its progress, rate and remaining time; --list shows them for all exports, from any host
that has the store. Ctrl-C or SIGTERM ends an export and leaves only finished packs; the same command resumes there.
"""


def export_command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            show_default=False,
            help=f"A spec's name, {', '.join(f'{kind.prefixes[0]}…' for kind in SOURCES.values())}, or a path.",
            autocompletion=complete_image,
        ),
    ] = None,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help=f"Required: {describe_formats()}.",
            autocompletion=one_of(*FORMATS),
        ),
    ] = "",
    output: OutputPath = None,
    compression: Annotated[
        str,
        typer.Option(
            help=describe_compressions(),
            autocompletion=one_of(*dict.fromkeys(name for form in FORMATS.values() for name in form.compressions)),
        ),
    ] = "",
    level: Annotated[
        int | None, typer.Option(help="zstd 1-22 (default 3), lz4 0-12 (0), gzip 1-9 (6).", show_default=False)
    ] = None,
    block: Annotated[
        str,
        typer.Option(
            help="128K (default: quickest to start from), 256K, 512K, 1M (smallest file).",
            autocompletion=one_of("128K", "256K", "512K", "1M"),
        ),
    ] = "",
    jobs: Annotated[int, typer.Option(min=0, help="Threads that compress (0: all cores).")] = 0,
    platform: Platform = "",
    keep_owners: Annotated[
        bool,
        typer.Option(
            "--keep-owners",
            help="Keep owners, device nodes and extended attributes, for other readers than enroot.",
        ),
    ] = False,
    keep_dev: Annotated[
        bool,
        typer.Option("--keep-dev", help="Keep what is below /dev (without --keep-owners no device nodes)."),
    ] = False,
    cache: Annotated[
        bool,
        typer.Option(
            "--cache/--no-cache",
            help="Cache the compressed layers for the next image, or write them directly into the file.",
        ),
    ] = True,
    keep_layers: Annotated[
        bool,
        typer.Option(
            "--keep-layers",
            help="Of docker://: also cache the layers as pulled. An interrupted pull resumes within a layer; another "
            "--compression pulls nothing.",
        ),
    ] = False,
    sha256: Annotated[
        bool, typer.Option("--sha256", help="Print the sha256 of the file (reads the whole file again).")
    ] = False,
    tag: Annotated[str, typer.Option(help="Reference in the Docker Engine; default NAME:<lock digest>.")] = "",
    list_: Annotated[
        bool, typer.Option("--list", help="Show the exports on this store: running, or ended in the last day.")
    ] = False,
    as_json: Json = False,
) -> None:
    if list_:
        from envbuild.export.progress_list import list_exports
        from envbuild.spec.workspace import store_folder

        if name or to or output is not None:
            raise SpecError("export --list takes no SOURCE and exports nothing", hint="envbuild export --list")
        found = list_exports(store_folder())
        show(found.data, as_json, found.text)
        return
    if not name or not to:
        lacking = "a SOURCE" if not name else "--to"
        raise SpecError(
            f"export needs {lacking}",
            hint=f"envbuild export {name or 'docker://NAME:TAG'} --to squashfs; or: envbuild export --list",
        )
    from envbuild.export.options import ExportOptions
    from envbuild.export.output_path import Output
    from envbuild.spec.workspace import open_workspace

    place = None if output is None else Output.of(output)
    options = ExportOptions(
        to,
        output=place,
        compression=compression,
        level=level,
        block=block,
        jobs=jobs,
        platform=platform,
        keep_owners=keep_owners,
        tag=tag,
        cache=cache,
        keep_dev=keep_dev,
        sha256=sha256,
        keep_layers=keep_layers,
    )
    with open_workspace(names=[name]) as workspace:
        result = export_image(name, options, workspace)
        text = result.text
        if to == "squashfs" and not as_json:
            from envbuild.launch.start_line import start_lines

            path, again = Path(result.data["path"]), f"envbuild export {shell_word(name)} --to squashfs"
            text += "\n" + start_lines(path, workspace.site, again, chosen=place is not None, width=7)
    show(result.data, as_json, text)


export_command.__doc__ = EXPORT


def export_image(name: str, options: ExportOptions, workspace: Workspace) -> Result:
    """Export an image of the project (built first if needed) in any format, or a third-party image
    (`envbuild.oci.sources.open`) as squashfs."""
    from envbuild.export.export import export_foreign, prepare_output, write_output
    from envbuild.oci.sources.open import parse_source

    options.check(name)
    if parse_source(name):
        return export_foreign(name, options, workspace)
    options.check_own(name)
    prepare_output(options, name)  # before the image is made, which may take long
    from envbuild.export.built_image import load_built_image  # only here: a third-party image needs no plan
    from envbuild.export.progress import PACKING, track_export
    from envbuild.make import Options, make

    make(name, workspace, Options())
    with track_export(name, options.output.path if options.output else None, workspace, PACKING) as progress:
        return write_output(load_built_image(name, workspace), options, progress)
