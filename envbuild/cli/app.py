"""The command line: parse, call, print. It decides nothing.

stdout is data, stderr is talk; `--json` wherever a script may listen; every command ends with the next thing to type.
Heavy modules are
imported inside the commands: `--help` costs only typer.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from envbuild import __version__
from envbuild.cli.export import EXPORT
from envbuild.cli.export import export as export_command
from envbuild.cli.json_answer import answer, encode_error
from envbuild.cli.matrix import check as check_command
from envbuild.cli.matrix import matrix_app
from envbuild.cli.options import Json, Name, Names, complete_image, complete_recipe, show, show_each
from envbuild.cli.store import store_app
from envbuild.core import signals
from envbuild.core.errors import FREE_SOME, EngineError, EnvbuildError, SpecError
from envbuild.core.text import counted

app = typer.Typer(
    name="envbuild",
    help="Reproducible training environments: from an image spec to a squashfs that `srun --container-image=…` starts.",
    epilog="Start with:  envbuild list;  envbuild make cpu-ucx.  Exit codes: 1 not made yet (diff: different), "
    "2 usage or spec, 3 conflict, 4 lock, 5 engine, 6 build, 7 verify, 8 output, 9 unknown combination, "
    "10 input unobtainable.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(store_app, name="store")
app.add_typer(matrix_app, name="matrix")


EngineName = Annotated[str, typer.Option("--engine", help="embedded, buildah, or auto (the first that can run here).")]


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


@app.command()
def make(
    names: Names,
    engine: EngineName = "",
    workers: Annotated[int, typer.Option(min=0, help="Units built at once (0: from cores).")] = 0,
    jobs: Annotated[int, typer.Option(min=0, help="Compile jobs in all (0: from cores and memory).")] = 0,
    check: Annotated[
        bool, typer.Option("--check", help="Build every unit twice and name the first file that differs.")
    ] = False,
    shell_on_fail: Annotated[
        bool, typer.Option("--shell-on-fail", help="Open a shell in a failed step, as it left things.")
    ] = False,
    verify: Annotated[bool, typer.Option(help="Audit and run the finished image.")] = True,
    as_json: Json = False,
) -> None:
    """Make images: load, resolve, lock if there is no lock, fetch, plan, build, export a squashfs, verify.

    Nothing is done twice: a second run with nothing changed says so; a change builds only the units whose inputs
    changed.
    """
    from dataclasses import asdict

    from envbuild.build.engines.base import BuildOptions
    from envbuild.lock.resolve import resolve_image
    from envbuild.make import Options, make_twice
    from envbuild.make import make as make_image
    from envbuild.spec.workspace import open_workspace

    workspace = open_workspace()
    options = Options(engine, BuildOptions(workers, jobs, shell_on_fail), verify)
    for name in names if len(names) > 1 else ():  # a mistake in the last one is told before the first takes minutes
        resolve_image(name, workspace)
    made = ((make_twice if check else make_image)(name, workspace, options) for name in names)
    show_each(((asdict(one), summary(one)) for one in made), as_json)


def summary(made: Any) -> str:
    """What was made, and how to start it."""
    artifact = Path(made.artifact)
    link = artifact.with_name(f"{made.image}.sqsh")
    if made.up_to_date:
        head = f"{made.image}: up to date, nothing to do"
    else:
        built = counted(len(made.built), "unit")
        head = f"{made.image}: {built} built, {len(made.reused)} from the store, in {made.seconds:.0f} s"
    checked = "" if made.evidence else "\n  verify:   not run (--no-verify)"
    return (
        f"{head}\n  squashfs: {artifact}\n  sha256:   {made.sha256}{checked}\n"
        f"  start:    srun --container-image={link} --pty bash\n  or here:  envbuild run {made.image} -- bash"
    )


@app.command()
def lock(
    names: Names,
    upgrade: Annotated[
        list[str], typer.Option("--upgrade", metavar="PKG", help="Take the newest of this package; may be repeated.")
    ] = [],  # noqa: B006
    refresh: Annotated[bool, typer.Option("--refresh", help="Replace only what can no longer be had.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget the old lock: the newest of everything.")] = False,
    as_json: Json = False,
) -> None:
    """Lock every input of an image by digest into images/NAME.lock.

    Versions of an older lock stay where they still fit; what changes is listed. An image that cannot be locked does not
    keep the others from it; the exit code is that of the first.
    """
    from envbuild.cli.lock import lock_images
    from envbuild.spec.workspace import open_workspace

    if fresh and (upgrade or refresh):
        raise SpecError("--fresh takes the newest of everything", hint="leave out --upgrade and --refresh")
    show_each(lock_images(names, open_workspace(), frozenset(upgrade), refresh=refresh, fresh=fresh), as_json)


@app.command()
def fetch(
    names: Names,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Lay them out as the mirror of an air-gapped site.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fetch every input of an image into the store, so that a later make needs no network; with --to, into a folder
    that an air-gapped site builds from.

    An image that lacks an input does not keep the others from it; what is missing of all images is told at the end.
    """
    from envbuild.cli.fetch import fetch_images
    from envbuild.spec.workspace import open_workspace

    show_each(fetch_images(names, open_workspace(), to), as_json)


app.command("check")(check_command)


@app.command("compile")
def compile_(
    name: Name,
    context: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write the build context (all inputs) into this folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the Containerfile of an image; with --context, everything that `buildah build` or `docker build` needs,
    without network.

    An image without a lock is printed too; which files its inputs are then stands open.
    """
    from envbuild.build.plan.containerfile import containerfile
    from envbuild.build.plan.planner import make_plan
    from envbuild.lock.resolve import resolve_image
    from envbuild.lock.update import current_lock, draft_lock
    from envbuild.spec.workspace import open_workspace

    workspace = open_workspace()
    resolution = resolve_image(name, workspace)
    has_lock = workspace.project.lock_path(resolution.spec.path).is_file() or context is not None
    lock = current_lock(resolution, workspace) if has_lock else draft_lock(resolution)
    plan = make_plan(resolution, lock)
    text = containerfile(plan, locked=has_lock)
    if not has_lock:
        workspace.reporter.info(f"{name} has no lock; next: envbuild lock {name}")
    if context is not None:
        from envbuild.build.engines.build_context import write_context
        from envbuild.lock.fetch import fetch

        fetch(lock, workspace.store, workspace.site, workspace.reporter)
        write_context(plan, workspace.store, context)
        workspace.reporter.info(
            "next: buildah build --isolation chroot "
            f"-f {shlex.quote(str(context / 'Containerfile'))} {shlex.quote(str(context))}"
        )
    if as_json:
        show({"image": lock.image, "containerfile": text, "context": str(context or "")}, True, "")
    else:
        typer.echo(text, nl=False)


app.command("export", help=EXPORT)(export_command)


@app.command()
def verify(name: Name, as_json: Json = False) -> None:
    """Audit a made image and run its checks; NAME may be a squashfs file."""
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
        list[str], typer.Option("--bind", metavar="SRC[:DST]", help="Make a folder visible inside; may be repeated.")
    ] = [],  # noqa: B006
) -> None:
    """Run a command in a finished image on this machine, in the same sandbox that built it. NAME may be a squashfs
    file.

    What the command writes is thrown away, but for folders given with --bind.
    """
    from envbuild.cli.run import run_image
    from envbuild.spec.workspace import open_workspace

    raise typer.Exit(run_image(name, command or [], open_workspace(), network=network, binds=bind))


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the images: target, whether there is a lock, whether it is made."""
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
    """List the recipes, the layers that a spec may have; of one, say what it is and which options it takes."""
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
        str, typer.Option("--cat", metavar="PATH", help="Write this one file of a squashfs file to stdout instead.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Show an image: layers, versions, units and where each stands; of one without a lock what its spec asks for, which
    versions are picked, and where the lock would take its inputs from.

    Of any squashfs file, whoever made it: where it came from, how it starts, what it holds. It is read as it lies:
    nothing is mounted or run.
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
    files: Annotated[bool, typer.Option("--files", help="Tell every path and package, not the first few.")] = False,
    as_json: Json = False,
) -> None:
    """Tell what image B changes of image A: components, packages, environment, files.

    A name stands for its made squashfs, or where it is not made for its lock; then files are not compared. How a file
    is compressed is no difference.

    Exit codes as diff: 0 equal, 1 different; a higher one is an error.
    """
    from envbuild.spec.workspace import open_workspace
    from envbuild.verify.contents.diff import diff_images

    result = diff_images(a, b, open_workspace(writes=False), files=files)
    show(result.data, as_json, result.text)
    raise typer.Exit(0 if result.data["equal"] else 1)


def main() -> None:
    """The command, once `envbuild.cli.start` is through: a user's mistake is told without a traceback; the exit code
    says its kind, or that a signal ended the command (128 + its number)."""
    streams()
    try:
        with signals.listening():
            app()
    except EnvbuildError as error:
        fail(error)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        advice = ADVICE | ({} if error.filename else {errno.ENOSPC: FREE_ANY})  # a nameless one may be stdout's
        hint = advice.get(error.errno or 0, REPORT)
        fail(EngineError(str(error.strerror or error), hint=hint, where=str(error.filename or "")))


def fail(error: EnvbuildError) -> NoReturn:
    """Report an error, to people on stderr and with ``--json`` as an object on stdout, and exit with its code."""
    for finding in error.findings:
        print(f"error: {finding}", file=sys.stderr)
    if answer.requested:
        with contextlib.suppress(OSError):  # stdout may be what failed
            print(encode_error(error), flush=True)
    sys.exit(error.exit_code)


def streams() -> None:
    """Where stdin, stdout or stderr is closed (``2>&-``), let it be the null device: the next file that is opened would
    get its number, and messages would go into that file. What an output's encoding (``PYTHONIOENCODING``) has no sign
    for is printed as ``?``."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free: this one
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(errors="replace")


REPORT = "if the store and the project can be read and written, this is a fault of envbuild: please report it"
FREE_ANY = f"free some space where the output goes; in the store: {FREE_SOME}"
ADVICE = {
    errno.ENOSPC: FREE_SOME,
    errno.EACCES: "look at the owner and mode of that file and of the folders above it",
    errno.EPERM: "look at the owner and mode of that file and of the folders above it",
    errno.EROFS: "that file system is read-only: set ENVBUILD_STORE, or work in a copy of the project",
}
