"""``envbuild store …`` on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from envbuild.cli.options import Json, show

if TYPE_CHECKING:  # --help needs none of them
    from envbuild.core.result import Result
    from envbuild.spec.workspace import Workspace

store_app = typer.Typer(help="The store of inputs, layers and packs.", no_args_is_help=True, rich_markup_mode=None)


@store_app.command("du")
def store_du(as_json: Json = False) -> None:
    """Print the bytes in the store, by kind."""
    from envbuild.core.store.access import check_readable
    from envbuild.spec.workspace import read_workspace

    workspace = read_workspace()
    check_readable(workspace.store.root)
    result = store_usage(workspace)
    show(result.data, as_json, result.text)


@store_app.command("gc")
def store_gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be removed.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Remove every unit and input that no finished image uses, of any age.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Remove what no image built from this store needs."""
    from envbuild.spec.workspace import open_workspace

    with open_workspace(alone=True, clean=False) as workspace:  # it counts what it removes
        result = store_collect(workspace, dry_run=dry_run, everything=everything)
    show(result.data, as_json, result.text)


@store_app.command("check")
def store_check(
    repair: Annotated[
        bool, typer.Option("--repair", help="Remove what is damaged; the next command that needs it makes it again.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Read everything in the store and compare it with its digests and checksums.

    Exit codes: 0 nothing is damaged, or it was removed; 1 something is damaged and remains.
    """
    from envbuild.spec.workspace import open_workspace

    with open_workspace(alone=repair) as workspace:
        result = store_comparison(workspace, repair=repair)
    show(result.data, as_json, result.text)
    raise typer.Exit(1 if result.data["remaining"] else 0)


@store_app.command("join")
def store_join(as_json: Json = False) -> None:
    """Use a store of another user, or below a folder of another user, where others can make one of any name.

    You trust its owner, and the group that shares it, with what your images contain; the owner of a folder on the way
    to it with all that your commands do. It is recorded in ~/.config/envbuild/stores.
    """
    from envbuild.core.errors import EngineError
    from envbuild.core.store.joined import join_stores
    from envbuild.core.store.place import check_place, describe_owner, places_to_join
    from envbuild.spec.project import Project
    from envbuild.spec.workspace import load_site

    root = load_site(Project.find().site_folder).store
    check_place(root, joining=True, is_new=True)
    places = places_to_join(root)
    if not places:
        raise EngineError(f"there is no store {root}", hint="set ENVBUILD_STORE to that of your group")
    join_stores(places)
    owners = [f"{place}: {' and the group '.join(describe_owner(place))}" for place in sorted(places)]
    show({"store": str(root.resolve())}, as_json, "\n".join((f"the store {root} is used from now on", *owners)))


def store_comparison(workspace: Workspace, *, repair: bool) -> Result:
    """Compare the store with its digests and checksums."""
    from envbuild.core.result import Result
    from envbuild.verify.store_check import check_store, describe

    store = workspace.store
    found = check_store(store, workspace.reporter, repair=repair)
    damaged = [
        {"kind": item.kind, "path": str(item.path.relative_to(store.root)), "reason": item.reason}
        for item in found.damaged
    ]
    left = found.remaining if found.removed else found.damaged
    remaining = [str(item.path.relative_to(store.root)) for item in left]
    unknown = [str(path.relative_to(store.root)) for path in found.unknown]
    data = {
        "compared": found.compared,
        "bytes": found.size,
        "damaged": damaged,
        "remaining": remaining,
        "unknown": unknown,
        "repair": repair,
    }
    return Result(data, describe(found, store))


def store_usage(workspace: Workspace) -> Result:
    """Return bytes on disk by kind of content."""
    from envbuild.core.result import Result
    from envbuild.core.store.usage import usage
    from envbuild.core.text import amount, table

    sizes = usage(workspace.store)
    total = sum(sizes.values())
    rows = [[kind, amount(size)] for kind, size in sizes.items()] + [["total", amount(total)]]
    return Result({**sizes, "total": total}, f"{workspace.store.root}\n" + table(["WHAT", "SIZE"], rows))


def store_collect(workspace: Workspace, *, dry_run: bool, everything: bool) -> Result:
    """Remove what no built image needs."""
    from envbuild.core.result import Result
    from envbuild.core.store.gc import collect
    from envbuild.core.text import amount, counted

    removed, freed = collect(workspace.store, workspace.reporter, dry_run=dry_run, everything=everything)
    verb = "would remove" if dry_run else "removed"
    text = f"{verb} {counted(len(removed), 'item')}, {amount(freed)}"
    return Result({"removed": removed, "bytes": freed, "dry_run": dry_run}, text)
