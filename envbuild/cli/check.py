"""``envbuild check``: whether versions work together, for images or for words such as ``torch=2.8``."""

from __future__ import annotations

from typing import Annotated

import typer

from envbuild.cli.json_answer import keep_on_error
from envbuild.cli.options import Json, complete_fact, complete_image, complete_word, show
from envbuild.core.errors import SpecError


def complete_request(incomplete: str) -> list[str]:
    """Complete images, then components, then their values."""
    images = [] if "=" in incomplete else complete_image(incomplete)
    return images + complete_word(incomplete)


def check_command(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME… | COMPONENT=VERSION…",
            help="Images; or components to use together: gpu=H100 torch=2.8 'cuda>=12.6' apex driver=535.86.10.",
            autocompletion=complete_request,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every image of the project and of envbuild.")] = False,
    why: Annotated[
        str, typer.Option("--why", metavar="COMPONENT", help="Also explain why this component is not newer.")
    ] = "",
    waive: Annotated[
        list[str] | None,
        typer.Option(
            "--waive",
            metavar="FACT",
            help="Answer as if this fact did not exist; for components. Repeatable.",
            autocompletion=complete_fact,
        ),
    ] = None,
    host: Annotated[
        bool, typer.Option("--host", help="Images with the driver, kernel and Slurm of this machine, not the target's.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check that versions work together on their hardware: valid, conflict, conditional, disputed or unknown, with the
    facts behind it. One component alone is known: there is nothing to compare.

    An image is checked as it is locked, or as its spec requests if it has no current lock; --all prints one line for
    each image, and what prevents it. For components without a version (apex, torch) the newest compatible version is
    picked. Exit codes: 0 valid, known, conditional or disputed, 3 conflict, 9 unknown.
    """
    from envbuild.cli.check_requested import check_requested
    from envbuild.cli.check_result import exit_code, overview

    facts = None
    if host:
        from envbuild.cli.doctor_run import examine_host

        facts = examine_host().facts
    results, wrong = check_requested(what or [], everything, why, waive or [], facts)
    if as_json:
        data = [result.data for result in results]
        keep_on_error("answers", data)
        if not wrong:
            show({"answers": data}, True, "")
    elif results:
        show({}, False, overview(results) if everything and not why else "\n\n".join(result.text for result in results))
    if wrong:
        raise SpecError.of(wrong)
    raise typer.Exit(exit_code(results))
