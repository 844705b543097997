"""``envbuild make``: images up to a verified squashfs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from envbuild.cli.options import Json, Names, Timings, one_of, show_each, timing_reporter
from envbuild.core.engines import ENGINES
from envbuild.core.errors import SpecError

if TYPE_CHECKING:  # --help needs none of them
    from envbuild.export.built_image import ImageRecord
    from envbuild.make import Options
    from envbuild.net.site import Site
    from envbuild.spec.workspace import Workspace

EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        help=f"{', '.join(ENGINES)}, or auto (the first that runs here).",
        autocompletion=one_of("auto", *ENGINES),
    ),
]


def make_command(
    names: Names,
    engine: EngineName = "",
    workers: Annotated[int, typer.Option(min=0, help="Units built at once by engine embedded (0: from cores).")] = 0,
    jobs: Annotated[int, typer.Option(min=0, help="Compile jobs in all (0: from cores and memory).")] = 0,
    check: Annotated[
        bool, typer.Option("--check", help="Build every unit twice and name the first file that differs.")
    ] = False,
    shell_on_fail: Annotated[
        bool, typer.Option("--shell-on-fail", help="Open a shell in a failed step, in the state it left.")
    ] = False,
    cache: Annotated[
        bool,
        typer.Option("--cache/--no-cache", help="Use the caches of units of site.yaml; without, build all units here."),
    ] = True,
    send: Annotated[
        bool, typer.Option("--send/--no-send", help="Send new units to the caches with `write: true`.")
    ] = True,
    verify: Annotated[bool, typer.Option(help="Audit and run the finished image.")] = True,
    lock: Annotated[bool, typer.Option("--lock", help="Lock again first if the inputs of an image changed.")] = False,
    locked: Annotated[
        bool, typer.Option("--locked", help="Make no lock: exit with code 4 if one is missing or would change.")
    ] = False,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="squashfs: a file of the image; layers: build all units and leave the file to a later run.",
            autocompletion=one_of("squashfs", "layers"),
        ),
    ] = "squashfs",
    timings: Timings = False,
    as_json: Json = False,
) -> None:
    """Make images: load, resolve, lock if there is no lock, fetch, plan, build, export a squashfs, verify.

    A second run without a change does nothing. After a change, only the units whose inputs changed are built.
    """
    from dataclasses import asdict, replace

    from envbuild.build.engines.base import BuildOptions
    from envbuild.lock.resolve import resolve_image
    from envbuild.make import LockRule, Options, make_twice
    from envbuild.make import make as make_image
    from envbuild.publish.make_and_share import make_and_share, site_caches
    from envbuild.spec.workspace import open_workspace

    if as_json and shell_on_fail:
        raise SpecError("--shell-on-fail opens a shell on stdout, which --json reserves", hint="leave out one of them")
    if lock and locked:
        raise SpecError("--lock makes locks, and --locked makes none", hint="leave out one of them")
    if to not in ("squashfs", "layers"):
        raise SpecError(f"--to {to}: make has no such output", hint="--to squashfs or --to layers")
    if to == "layers" and check:
        raise SpecError("--check compares with a finished image", hint="leave out --to layers")
    rule = LockRule.RENEW if lock else LockRule.REQUIRE if locked else LockRule.MAKE
    options = Options(engine, BuildOptions(workers, jobs, shell_on_fail), verify, lock=rule)
    kind = make_twice if check else make_image
    times = timing_reporter(timings)
    with open_workspace(times, names=names) as workspace:
        caches = site_caches(workspace) if cache else ()
        options = replace(options, engine=engine or workspace.site.engine, caches=caches)
        for name in names if len(names) > 1 else ():  # a mistake in the last is reported before the first takes minutes
            resolve_image(name, workspace)
        if locked and len(names) > 1:
            from envbuild.lock.required_lock import check_locks

            check_locks(names, workspace)
        if to == "layers":
            show_each((layers_made(name, workspace, options) for name in names), as_json, times)
            return
        made = (make_and_share(kind, name, workspace, options, send=send) for name in names)
        show_each(((asdict(one), summary(one, workspace.site)) for one in made), as_json, times)


def layers_made(name: str, workspace: Workspace, options: Options) -> tuple[dict[str, Any], str]:
    """Make the layers of an image; return what was done as data and as text."""
    from envbuild.core.text import counted
    from envbuild.make import make_layers

    plan, built = make_layers(name, workspace, options)
    layers = [layer.diff_id for layer in built.layers]
    data = {"image": plan.image, "engine": built.engine, "layers": layers, "built": built.built, "reused": built.reused}
    return data, (
        f"{plan.image}: {counted(len(built.built), 'unit')} built, {len(built.reused)} from the store\n"
        f"  try it:   envbuild run {plan.image} -- bash\n  file:     envbuild make {plan.image}"
    )


def summary(made: ImageRecord, site: Site) -> str:
    """Return what was made and how to start it."""
    from envbuild.core.shell import shell_word
    from envbuild.core.text import counted
    from envbuild.launch.start_line import start_lines

    artifact = Path(made.artifact)
    link = artifact.with_name(f"{made.image}.sqsh")
    if made.up_to_date:
        head = f"{made.image}: up to date, nothing to do"
    else:
        built = counted(len(made.built), "unit")
        taken = f" {len(made.cached)} from caches," if made.cached else ""
        head = f"{made.image}: {built} built,{taken} {len(made.reused)} from the store, in {made.seconds:.0f} s"
    checked = "" if made.evidence else f"\n  verify:   not run by this user: envbuild verify {shell_word(made.image)}"
    start = start_lines(link, site, f"envbuild export {made.image} --to squashfs", chosen=False)
    return (
        f"{head}\n  squashfs: {artifact}\n  sha256:   {made.sha256}{checked}\n"
        f"{start}\n  or here:  envbuild run {made.image} -- bash"
    )
