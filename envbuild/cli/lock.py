"""``envbuild lock``: the inputs of images into their locks."""

from __future__ import annotations

from typing import Annotated

import typer

from envbuild.cli.options import Json, Names, Timings, show_each, timing_reporter
from envbuild.core.errors import SpecError


def lock_command(
    names: Names,
    upgrade: Annotated[
        list[str],
        typer.Option("--upgrade", metavar="PKG", help="Take the newest version of this package; may be repeated."),
    ] = [],  # noqa: B006
    upgrade_package: Annotated[
        list[str],
        typer.Option(
            "--upgrade-package",
            metavar="PKG",
            help="Take the newest version of this Python package that fits all others as they are; may be repeated.",
        ),
    ] = [],  # noqa: B006
    refresh: Annotated[bool, typer.Option("--refresh", help="Replace only what is no longer available.")] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Ignore the old lock: take the newest version of everything.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would change, and write no lock.")] = False,
    timings: Timings = False,
    as_json: Json = False,
) -> None:
    """Lock every input of an image by digest into images/NAME.lock.

    Versions of an older lock are preserved where they still fit; changes are listed. An image that cannot be locked
    does not stop the others; the exit code is that of the first error.
    """
    from envbuild.cli.lock_images import LockOptions, lock_images
    from envbuild.spec.workspace import open_workspace

    if fresh and (upgrade or refresh):
        raise SpecError("--fresh takes the newest version of everything", hint="leave out --upgrade and --refresh")
    if upgrade_package and (upgrade or refresh or fresh):
        raise SpecError(
            "--upgrade-package changes one package alone", hint="leave out --upgrade, --refresh and --fresh"
        )
    options = LockOptions(
        frozenset(upgrade or upgrade_package), bool(upgrade_package), refresh=refresh, fresh=fresh, dry_run=dry_run
    )
    times = timing_reporter(timings)
    with open_workspace(times, names=names) as workspace:
        show_each(lock_images(names, workspace, options), as_json, times)
