"""``envbuild verify``: the audit and the checks of a finished image."""

from __future__ import annotations

from typing import Annotated

import typer

from envbuild.cli.options import Json, Name, Timings, complete_recipe, one_of, show, timing_reporter

SLOWEST = 10  # checks that --timings lists

Tiers = Annotated[
    list[str] | None,
    typer.Option(
        "--tier",
        help="Only checks of this tier: audit (what is in the file) or run (its programs). Repeatable.",
        autocompletion=one_of("audit", "run"),
    ),
]
Recipes = Annotated[
    list[str] | None,
    typer.Option(
        "--only", metavar="LAYER", help="Only the checks of this layer. Repeatable.", autocompletion=complete_recipe
    ),
]


def verify_command(
    name: Name,
    tier: Tiers = None,
    only: Recipes = None,
    host: Annotated[
        bool, typer.Option("--host", help="Also compare the image with this machine, as doctor does.")
    ] = False,
    timings: Timings = False,
    as_json: Json = False,
) -> None:
    """Audit a built image and run its checks; NAME may be a squashfs file.

    All bytes of the file are read first. A part of the checks (--tier, --only) leaves the evidence as it is.
    """
    from envbuild.spec.workspace import open_workspace
    from envbuild.verify.selection import Selection
    from envbuild.verify.verify import verify_image

    times = timing_reporter(timings)
    with open_workspace(times) as workspace:
        result = verify_image(name, workspace, Selection(tuple(tier or ()), tuple(only or ())))
    slowest = sorted(result.data["seconds"].items(), key=lambda item: -item[1])[:SLOWEST] if timings else []
    lines = [result.text, *(f"{took:8.1f} s  {check}" for check, took in slowest)]
    if not host:
        show(result.data, as_json, "\n".join(lines), times)
        return
    from envbuild.cli.doctor_run import compare_with_host

    comparison = compare_with_host(name)
    show({**result.data, "host": comparison.data}, as_json, "\n".join([*lines, "", comparison.text]), times)
    raise typer.Exit(comparison.code)
