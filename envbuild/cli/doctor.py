"""``envbuild doctor``: what this machine is, and what it lacks."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from envbuild import __version__
from envbuild.cli.options import Json, complete_image, complete_target, one_of, show, show_data
from envbuild.core.errors import SpecError, VerifyError


def doctor_command(
    target: Annotated[
        str, typer.Argument(metavar="[TARGET]", help="Hardware target: h100-ib.", autocompletion=complete_target)
    ] = "",
    image: Annotated[
        str,
        typer.Option("--image", metavar="FILE|NAME", help="Also compare an image.", autocompletion=complete_image),
    ] = "",
    log: Annotated[str, typer.Option("--log", metavar="FILE", help="Also search faults in the log of a job.")] = "",
    kind: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="nhc|healthcheck",
            help="Print only what drains a node, a line each; with healthcheck the command, too. It is not executed.",
            autocompletion=one_of("nhc", "healthcheck"),
        ),
    ] = "",
    only_hardware: Annotated[
        bool, typer.Option("--only-hardware", help="With --as: only failures of hardware drain a node.")
    ] = False,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="CHECK", help="Leave a check out: nvlink. It may be given several times."),
    ] = None,
    gather: Annotated[
        str, typer.Option("--gather", metavar="DIR", help="Compare the --json answers of several nodes.")
    ] = "",
    nodes: Annotated[
        str,
        typer.Option("--nodes", metavar="LIST", help="With --gather: the nodes that must have an answer: n[01-16]."),
    ] = "",
    print_script: Annotated[
        bool, typer.Option("--print-script", help="Print the doctor as one file for nodes with Python >= 3.8 alone.")
    ] = False,
    ctrf: Annotated[bool, typer.Option("--ctrf", help="Print a CTRF report, which CI systems read.")] = False,
    as_json: Json = False,
) -> None:
    """Check this machine: driver, GPUs, network, limits, containers, Slurm.

    It changes nothing, and needs no root; what needs root is reported as not run. Not run is never a pass. Exit codes:
    0 no failure but minor ones, 2 unknown target, 5 /proc or /sys cannot be read, 7 failures.
    """
    from envbuild.doctor.health_check import KINDS

    if kind and kind not in KINDS:
        raise SpecError(f"--as has no form '{kind}'", hint="--as nhc, or --as healthcheck")
    if sum(map(bool, (kind, gather, print_script, ctrf, as_json and not gather))) > 1:
        raise SpecError("--as, --gather, --print-script, --ctrf and --json are different outputs", hint="choose one")
    check_options(kind, only_hardware, without or [])
    if nodes and not gather:
        raise SpecError("--nodes needs --gather", hint="envbuild doctor --gather DIR --nodes 'n[01-16]'")
    if gather and (target or image or log or without):
        raise SpecError("--gather compares files of nodes alone", hint="envbuild doctor --gather DIR")
    if print_script and (image or log or without):
        raise SpecError("--print-script contains a target alone", hint="envbuild doctor h100-ib --print-script")
    if gather:
        from envbuild.cli.doctor_gather import comparison_data
        from envbuild.cli.doctor_gather import gather as gather_nodes
        from envbuild.doctor.comparison_text import comparison_text

        found_nodes = gather_nodes(gather, nodes)
        show(comparison_data(found_nodes), as_json, comparison_text(found_nodes))
        raise typer.Exit(0 if found_nodes.equal else VerifyError.exit_code)
    if print_script:
        from envbuild.cli.doctor_run import need_of
        from envbuild.doctor.script import single_file

        show_data(single_file(need_of(target), __version__))
        return
    from envbuild.cli.doctor_run import examine_for

    found = examine_for(target, image, log, without or ())
    if kind:
        from envbuild.doctor.health_check import draining_failures, health_lines, unknown_line

        lines = health_lines(found, kind, only_hardware)
        if line := unknown_line(found):
            sys.stderr.write(f"{line}\n")
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        unfit = draining_failures(found, only_hardware=only_hardware)
        raise typer.Exit(VerifyError.exit_code if unfit else 0)
    if ctrf:
        from envbuild.doctor.ctrf import ctrf_data

        show_data(json.dumps(ctrf_data(found, __version__), indent=1) + "\n")
    else:
        from envbuild.doctor.report_text import report_text

        show(found.data(), as_json, report_text(found))
    raise typer.Exit(VerifyError.exit_code if found.serious else 0)


def check_options(kind: str, only_hardware: bool, without: list[str]) -> None:
    """Refuse an option without the one that it belongs to, and names that are not those of checks."""
    from envbuild.doctor.examination import unknown_checks

    if only_hardware and not kind:
        raise SpecError("--only-hardware needs --as", hint="--as nhc --only-hardware")
    if unknown := unknown_checks(without):
        raise SpecError(
            f"--without: unknown check: {', '.join(unknown)}", hint="the names of checks: envbuild doctor --ctrf"
        )
