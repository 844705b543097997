"""The command line: parse, call, print. It decides nothing.

stdout is data, stderr is progress and messages; commands that scripts use have `--json`; a command ends with the next
command to type. Heavy modules are imported inside the commands: `--help` costs only typer.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from envbuild import __version__
from envbuild.cli.compile import compile_command
from envbuild.cli.export import EXPORT
from envbuild.cli.export import export as export_command
from envbuild.cli.make import make_command
from envbuild.cli.matrix import check as check_command
from envbuild.cli.matrix import matrix_app
from envbuild.cli.options import Json, Name, Names, complete_image, complete_recipe, show, show_each
from envbuild.cli.store import store_app
from envbuild.core.errors import SpecError

app = typer.Typer(
    name="envbuild",
    help="Reproducible training environments: from an image spec to a squashfs that `srun --container-image=…` starts.",
    epilog="Start with:  envbuild list;  envbuild make cpu-ucx.  Exit codes: 1 not built (diff: different), "
    "2 usage or spec, 3 conflict, 4 lock, 5 engine, 6 build, 7 verify, 8 output, 9 unknown combination, "
    "10 input not available.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(store_app, name="store")
app.add_typer(matrix_app, name="matrix")


def version(value: bool) -> None:
    if value:
        typer.echo(f"envbuild {__version__}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options that come before the command."""


app.command("make")(make_command)


@app.command()
def lock(
    names: Names,
    upgrade: Annotated[
        list[str],
        typer.Option("--upgrade", metavar="PKG", help="Take the newest version of this package; may be repeated."),
    ] = [],  # noqa: B006
    refresh: Annotated[bool, typer.Option("--refresh", help="Replace only what is no longer available.")] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Ignore the old lock: take the newest version of everything.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Lock every input of an image by digest into images/NAME.lock.

    Versions of an older lock are preserved where they still fit; changes are listed. An image that cannot be locked
    does not stop the others; the exit code is that of the first error.
    """
    from envbuild.cli.lock import lock_images
    from envbuild.spec.workspace import open_workspace

    if fresh and (upgrade or refresh):
        raise SpecError("--fresh takes the newest version of everything", hint="leave out --upgrade and --refresh")
    show_each(lock_images(names, open_workspace(), frozenset(upgrade), refresh=refresh, fresh=fresh), as_json)


@app.command()
def fetch(
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
    from envbuild.cli.fetch import fetch_images
    from envbuild.spec.workspace import open_workspace

    show_each(fetch_images(names, open_workspace(), to), as_json)


app.command("check")(check_command)
app.command("compile")(compile_command)


app.command("export", help=EXPORT)(export_command)


@app.command()
def verify(name: Name, as_json: Json = False) -> None:
    """Audit a built image and run its checks; NAME may be a squashfs file."""
    from envbuild.spec.workspace import open_workspace
    from envbuild.verify.verify import verify_image

    result = verify_image(name, open_workspace())
    show(result.data, as_json, result.text)


@app.command(context_settings={"ignore_unknown_options": True})
def run(
    name: Name,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- CMD…", help="The command; default: the image's own.")
    ] = None,
    network: Annotated[bool, typer.Option("--network", help="Share this machine's network.")] = False,
    bind: Annotated[
        list[str], typer.Option("--bind", metavar="SRC[:DST]", help="Mount a folder in the image; may be repeated.")
    ] = [],  # noqa: B006
) -> None:
    """Run a command in a finished image on this machine, in the same sandbox that built it. NAME may be a squashfs
    file.

    Changes are discarded, except in folders mounted with --bind.
    """
    from envbuild.cli.run import run_image
    from envbuild.spec.workspace import open_workspace

    raise typer.Exit(run_image(name, command or [], open_workspace(), network=network, binds=bind))


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the images: target, state of the lock, whether the image is built."""
    from envbuild.cli.list import list_images
    from envbuild.spec.workspace import open_workspace

    result = list_images(open_workspace(writes=False))
    show(result.data, as_json, result.text)


@app.command()
def recipes(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="A recipe: cuda, torch, …", autocompletion=complete_recipe)
    ] = "",
    as_json: Json = False,
) -> None:
    """List the recipes, which are the layers that a spec may have; describe one with its options."""
    from envbuild.cli.recipes import describe_recipe, list_recipes
    from envbuild.spec.project import Project

    project = Project.find()
    result = describe_recipe(name, project) if name else list_recipes(project)
    show(result.data, as_json, result.text)


@app.command("show")
def show_(
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
    from envbuild.cli.show import show_image
    from envbuild.spec.workspace import open_workspace

    if cat:
        from envbuild.cli.show_file import cat_file

        cat_file(name, cat, sys.stdout.buffer)
        return
    result = show_image(name, open_workspace(writes=False))
    show(result.data, as_json, result.text)


SIDE = "A squashfs file, or a spec's name or path."


@app.command()
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=SIDE, autocompletion=complete_image)],
    b: Annotated[str, typer.Argument(metavar="B", help=SIDE, autocompletion=complete_image)],
    files: Annotated[bool, typer.Option("--files", help="List every path and package, not only the first.")] = False,
    as_json: Json = False,
) -> None:
    """Show what changed from image A to image B: components, packages, environment, files.

    A name means its built squashfs file, or its lock if the image is not built; then files are not compared.
    Compression does not count as a difference.

    Exit codes as diff: 0 equal, 1 different; a higher one is an error.
    """
    from envbuild.spec.workspace import open_workspace
    from envbuild.verify.contents.diff import diff_images

    result = diff_images(a, b, open_workspace(writes=False), files=files)
    show(result.data, as_json, result.text)
    raise typer.Exit(0 if result.data["equal"] else 1)
