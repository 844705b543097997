"""``envbuild verify``: the audit and the checks of a finished image.

verify_jobs     --tier gpu, --tier fabric, --read, --pack: checks in jobs on nodes, and their evidence
verify_rebuild  --rebuild: a second build of the image
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envbuild.cli.make import EngineName
from envbuild.cli.options import Json, Platform, Timings, complete_image, complete_recipe, one_of, show, timing_reporter
from envbuild.core.errors import SpecError

SLOWEST = 10  # checks that --timings lists

Tiers = Annotated[
    list[str] | None,
    typer.Option(
        "--tier",
        help="Only checks of this tier: audit (what is in the file) or run (its programs), repeatable; or gpu (one "
        "node) or fabric (several nodes), in jobs on nodes with GPUs.",
        autocompletion=one_of("audit", "run", "gpu", "fabric"),
    ),
]
Recipes = Annotated[
    list[str] | None,
    typer.Option(
        "--only", metavar="LAYER", help="Only the checks of this layer. Repeatable.", autocompletion=complete_recipe
    ),
]


def verify_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            show_default=False,
            help="A spec's name or path, a squashfs file, or a published image: docker://…, oci:DIR.",
            autocompletion=complete_image,
        ),
    ] = "",
    tier: Tiers = None,
    only: Recipes = None,
    host: Annotated[
        bool, typer.Option("--host", help="Also compare the image with this machine, as doctor does.")
    ] = False,
    nodes: Annotated[int, typer.Option("-N", "--nodes", help="Number of nodes of --tier fabric.")] = 0,
    form: Annotated[
        str,
        typer.Option(
            "--as",
            help="What starts --tier gpu: srun or docker (default: what is installed).",
            autocompletion=one_of("srun", "docker"),
        ),
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the jobs of --tier gpu or fabric, and start none.")
    ] = False,
    pack: Annotated[
        str,
        typer.Option("--pack", metavar="FILE", help="Write --tier gpu as one file for a machine with a GPU."),
    ] = "",
    read: Annotated[
        str, typer.Option("--read", metavar="FILE", help="Read evidence that make gpu-evidence wrote elsewhere.")
    ] = "",
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild", help="Build the image again from its lock, without any cache, and compare all bytes."
        ),
    ] = False,
    sign: Annotated[
        Path | None,
        typer.Option(
            "--sign", metavar="KEY", help="Sign the answer of --rebuild and attach it to the published image."
        ),
    ] = None,
    engine: EngineName = "",
    platform: Platform = "",
    timings: Timings = False,
    as_json: Json = False,
) -> None:
    """Audit a built image and run its checks; NAME may be a squashfs file, or a published image: docker://…, oci:DIR.

    Of a published image the signatures are compared with the keys of site.yaml first, then its file is fetched.

    All bytes of the file are read first. A part of the checks (--tier, --only) leaves the evidence as it is. The tiers
    gpu and fabric start jobs, as launch does. Exit code 7 if a check failed, 5 if none of these tiers ran.

    With --rebuild no check runs: the image is built from its lock in a store of its own, and its layers, its
    configuration and its squashfs file are compared. The first file that differs is named; the exit code is then 7.
    With --json the answer is a document about this second build; --sign attaches it, as the statement of another
    builder.
    """
    if read or set(tier or ()) & {"gpu", "fabric"}:
        from envbuild.cli.verify_jobs import pack_checks, verify_measured

        others: dict[str, object] = {"--only": only, "--host": host, "--timings": timings, "--rebuild": rebuild}
        others["--sign"] = sign
        others |= {"--engine": engine, "--platform": platform}
        if pack:
            others |= {"-N": nodes, "--as": form, "--dry-run": dry_run, "--read": read}
            pack_checks(name, tuple(tier or ()), pack, as_json=as_json, others=others)
            return
        verify_measured(name, tuple(tier or ()), nodes, form, read, dry_run=dry_run, as_json=as_json, others=others)
        return
    if not name:
        raise SpecError(
            "verify needs the name of an image", hint="envbuild verify NAME; or envbuild verify --read FILE"
        )
    if nodes or form or dry_run or pack:
        raise SpecError("-N, --as, --dry-run and --pack are for --tier gpu and --tier fabric", hint="type --tier gpu")
    from envbuild.oci.sources.kinds import is_published
    from envbuild.spec.workspace import open_workspace

    if rebuild:
        if tier or only or host:
            raise SpecError("--rebuild runs no checks", hint="leave out --tier, --only and --host, or --rebuild")
        from envbuild.cli.verify_rebuild import show_rebuild

        show_rebuild(name, engine, platform, sign, timings=timings, as_json=as_json)
        return
    if engine or platform or sign:
        hint = "add --rebuild, or leave them out"
        raise SpecError("--engine, --platform and --sign are those of a second build", hint=hint)
    from envbuild.verify.selection import Selection
    from envbuild.verify.verify import verify_image

    times = timing_reporter(timings)
    with open_workspace(times, names=[name]) as workspace:
        if is_published(name):
            from envbuild.publish.verify_remote import verify_remote

            if tier or only or host:
                raise SpecError("--tier, --only and --host are for a built image", hint=f"envbuild pull {name}")
            result = verify_remote(name, workspace)
        else:
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
