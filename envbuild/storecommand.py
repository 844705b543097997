"""``envbuild store …`` on the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from envbuild.options import Json, show

store_app = typer.Typer(help="The store of inputs, layers and packs.", no_args_is_help=True, rich_markup_mode=None)


@store_app.command("du")
def store_du(as_json: Json = False) -> None:
    """Bytes in the store, by kind."""
    from envbuild.listing import store_usage
    from envbuild.workspace import open_workspace

    result = store_usage(open_workspace(writes=False))
    show(result.data, as_json, result.text)


@store_app.command("gc")
def store_gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Remove every unit and input that no finished image holds, however new.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Remove what no image made from this store needs."""
    from envbuild.listing import store_collect
    from envbuild.workspace import open_workspace

    result = store_collect(open_workspace(), dry_run=dry_run, everything=everything)
    show(result.data, as_json, result.text)
