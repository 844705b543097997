"""Arguments and options of several commands, with completion, and the printing of results."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from envbuild.cli.json_answer import encode, keep_on_error, note_request, print_answer
from envbuild.core.text import printable_lines

if TYPE_CHECKING:
    from envbuild.core.timings import TimingReporter
    from envbuild.spec.project import Project


def complete_image(incomplete: str) -> list[str]:
    """Complete image names."""
    return [name for name in _project().images() if name.startswith(incomplete)]


def complete_recipe(incomplete: str) -> list[str]:
    """Complete recipe names."""
    return [name for name in _project().recipes() if name.startswith(incomplete)]


def complete_target(incomplete: str) -> list[str]:
    """Complete hardware targets."""
    return [name for name in _project().targets() if name.startswith(incomplete)]


def complete_word(incomplete: str) -> list[str]:
    """Complete components, then their values."""
    from envbuild.core.console import SilentReporter
    from envbuild.matrix.facts.compile import load_fact_table

    name, equals, start = incomplete.partition("=")
    if not equals:
        return [f"{item}=" for item in complete_component(name)]
    matrix = load_fact_table(_project().facts(), reporter=SilentReporter)
    number = matrix.number.get(name)
    return [] if number is None else [f"{name}={value}" for value in matrix.values[number] if value.startswith(start)]


def complete_component(incomplete: str) -> list[str]:
    """Complete components."""
    from envbuild.core.console import SilentReporter
    from envbuild.matrix.facts.compile import load_fact_table

    components = load_fact_table(_project().facts(), reporter=SilentReporter).components
    return [item.name for item in components if not item.hidden and item.name.startswith(incomplete)]


def complete_fact(incomplete: str) -> list[str]:
    """Complete the ids of facts."""
    from envbuild.core.console import SilentReporter
    from envbuild.matrix.facts.compile import load_fact_table

    facts = load_fact_table(_project().facts(), reporter=SilentReporter).facts
    return [fact.id for fact in facts if fact.id.startswith(incomplete)]


def _project() -> Project:
    """Return the project for a completion; none if it or its facts are not trusted."""
    from envbuild.core.console import SilentReporter
    from envbuild.core.errors import SpecError
    from envbuild.spec.project import Project

    try:
        project = Project.find(reporter=SilentReporter())
        project.facts()
    except SpecError:
        return Project()
    return project


def one_of(*names: str) -> Callable[[str], list[str]]:
    """Return the completion of an option that takes one of `names`."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A spec's name, or a path that ends in .yaml.", autocompletion=complete_image),
]
Names = Annotated[
    list[str],
    typer.Argument(metavar="NAME…", help="Specs' names, or paths that end in .yaml.", autocompletion=complete_image),
]
OutputPath = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="PATH",
        help="File to write, or a folder for it (an existing one, or NEW/); default: in the store.",
    ),
]
Platform = Annotated[
    str,
    typer.Option(
        help="linux/amd64, linux/arm64: which image of several; default: this machine's.",
        autocompletion=one_of("linux/amd64", "linux/arm64"),
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", callback=note_request, help="Print the result as one JSON object on stdout (docs/json.md)."),
]


Timings = Annotated[bool, typer.Option("--timings", help="Print how long each task took; --json has it, too.")]


def timing_reporter(requested: bool) -> TimingReporter | None:
    """Return a reporter that records times if `--timings` requests it; None: the usual one."""
    from envbuild.core.console import default_reporter
    from envbuild.core.timings import TimingReporter

    return TimingReporter(default_reporter()) if requested else None


def show(value: Mapping[str, Any], as_json: bool, text: str, times: TimingReporter | None = None) -> None:
    """Print a result as JSON or as text. A reader that closes the pipe early (head, grep -q) is not an error.

    times: of the tasks, which are part of the result."""
    try:
        if as_json:
            print_answer(encode({**value, "timings": times.rows()} if times else value))
        else:
            typer.echo(printable_lines("\n".join(filter(None, (text, times.table() if times else "")))))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing complains at the end, either


def show_data(text: str) -> None:
    """Print a text that is data (a Containerfile): as it is, but on a terminal as `show` does."""
    sys.stdout.write(printable_lines(text) if sys.stdout.isatty() else text)  # typer.echo removes escape sequences
    sys.stdout.flush()


def show_each(results: Iterable[tuple[Any, str]], as_json: bool, times: TimingReporter | None = None) -> None:
    """Print the results (data, text) of several images: texts at once, JSON and `times` as one object at the end.

    An error or a signal that ends them is printed with the results that came before it.
    """
    rows: list[Any] = []
    keep_on_error("images", rows)
    for row, text in results:
        rows.append(row)
        if not as_json:
            typer.echo(printable_lines(text))
    if as_json or times:
        show({"images": rows}, as_json, "", times)
