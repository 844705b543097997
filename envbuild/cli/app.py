"""The command line: a table of the commands, each in a module of its own.

stdout is data, stderr is progress and messages; commands that scripts use have `--json`; a command ends with the next
command to type. Only the command that runs is imported, and its heavy modules inside it: `--help` costs little more
than typer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from envbuild import __version__
from envbuild.core.late_import import import_object

COMMANDS = {  # name → function, or group of commands, in the order of `--help`
    "make": "envbuild.cli.make:make_command",
    "lock": "envbuild.cli.lock:lock_command",
    "fetch": "envbuild.cli.fetch:fetch_command",
    "check": "envbuild.cli.check:check_command",
    "compile": "envbuild.cli.compile:compile_command",
    "export": "envbuild.cli.export:export_command",
    "publish": "envbuild.cli.publish:publish_command",
    "pull": "envbuild.cli.pull:pull_command",
    "key": "envbuild.cli.key:key_app",
    "verify": "envbuild.cli.verify:verify_command",
    "run": "envbuild.cli.run:run_command",
    "launch": "envbuild.cli.launch:launch_command",
    "doctor": "envbuild.cli.doctor:doctor_command",
    "list": "envbuild.cli.list:list_command",
    "origins": "envbuild.cli.origins:origins_command",
    "recipes": "envbuild.cli.recipes:recipes_command",
    "show": "envbuild.cli.show:show_command",
    "report": "envbuild.cli.report:report_command",
    "diff": "envbuild.cli.diff:diff_command",
    "importer": "envbuild.cli.importer:importer_app",
    "store": "envbuild.cli.store:store_app",
    "matrix": "envbuild.cli.matrix:matrix_app",
}
SETTINGS = {"run": {"ignore_unknown_options": True}}


def version(value: bool) -> None:
    if value:
        typer.echo(f"envbuild {__version__}")
        raise typer.Exit


def root(
    _version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version and exit.")
    ] = False,
    trust: Annotated[
        list[Path] | None,
        typer.Option(
            "--trust",
            metavar="DIR",
            file_okay=False,
            help="Trust the projects in DIR, of any owner: their recipes run as you. Repeatable.",
        ),
    ] = None,
) -> None:
    """Options that come before the command."""
    for folder in trust or ():
        from envbuild.spec.trust import trust_folder

        trust_folder(folder)


def create_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """Return the program with these commands."""
    app = typer.Typer(
        name="envbuild",
        help="Reproducible training environments: from an image spec to a squashfs that "
        "`srun --container-image=…` starts.",
        epilog="Start with:  envbuild list;  envbuild make cpu-ucx.  Exit codes: 1 not built (diff: different), "
        "2 usage or spec, 3 conflict, 4 lock, 5 engine, 6 build, 7 verify, 8 output or publish, 9 unknown combination, "
        "10 input not available.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    for name in names:
        command = import_object(COMMANDS[name])
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name, context_settings=SETTINGS.get(name))(command)
    return app


def named_commands(arguments: Sequence[str]) -> Iterable[str]:
    """Return the command that a command line names; all of them if it names none (`--help`, completion, a mistake)."""
    words = list(arguments)
    while words and words[0].partition("=")[0] == "--trust":
        del words[: 1 if "=" in words[0] else 2]
    return words[:1] if words and words[0] in COMMANDS else COMMANDS
