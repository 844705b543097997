"""What several commands share: their arguments and options with completion, and how a result is printed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer


def complete_image(incomplete: str) -> list[str]:
    """Shell completion of image names."""
    from envbuild.spec.project import Project

    return [name for name in Project.find().images() if name.startswith(incomplete)]


def complete_recipe(incomplete: str) -> list[str]:
    """Shell completion of recipe names."""
    from envbuild.spec.project import Project

    return [name for name in Project.find().recipes() if name.startswith(incomplete)]


Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A spec's name, or a path that ends in .yaml.", autocompletion=complete_image),
]
Names = Annotated[
    list[str],
    typer.Argument(metavar="NAME…", help="Specs' names, or paths that end in .yaml.", autocompletion=complete_image),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]


def show(value: Any, as_json: bool, text: str) -> None:
    """Print a result: JSON or text. Whoever reads only its beginning (head, grep -q) has what was wanted."""
    try:
        typer.echo(json.dumps(value, indent=1, sort_keys=True) if as_json else text)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing complains at the end, either


def one_of(*names: str) -> Callable[[str], list[str]]:
    """Shell completion of an option that takes one of some words."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def show_each(results: Iterable[tuple[Any, str]], as_json: bool) -> None:
    """Print results (data, text) as they come, as JSON all of them at the end: also where an error ends them."""
    rows: list[Any] = []
    try:
        for row, text in results:
            rows.append(row)
            if not as_json:
                typer.echo(text)
    finally:
        if as_json:
            show(rows, True, "")
