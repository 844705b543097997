"""``envbuild report``: one page about an image or a file, or the results of its checks for CI."""

from __future__ import annotations

from typing import Annotated

import typer

from envbuild import __version__
from envbuild.cli.options import Json, complete_image, one_of, show, show_data
from envbuild.report.forms import FORMS


def report_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE",
            show_default=False,
            help="A spec's name or path, or any squashfs file.",
            autocompletion=complete_image,
        ),
    ],
    output: Annotated[
        str,
        typer.Option("-o", "--output", metavar="PATH", help="File to write, or a folder for it; default: stdout."),
    ] = "",
    to: Annotated[
        str, typer.Option("--to", help=f"What to write: {', '.join(FORMS)}.", autocompletion=one_of(*FORMS))
    ] = "html",
    as_json: Json = False,
) -> None:
    """Write a report of an image: the verdict, faults with their fixes, contents and origins, sizes, times, the answer
    of the version matrix, what was not run, the bill of materials.

    The page has no script, makes no request and has at most 200 kB. Nothing is built or run: an image that is not
    built has a report, too. Exit code 0 if the report is written, also of an image with faults.

    \b
      envbuild report h100-ucc -o report.html
      envbuild report ./image.sqsh --to junit -o results.xml
    """
    from envbuild.cli.write_report import check_form, make_report, write_report
    from envbuild.report.forms import write_form

    check_form(to, output)
    report = make_report(name)
    text = write_form(report, to, __version__)
    path = write_report(output, f"{report.name}{FORMS[to][1]}", text) if output else None
    if as_json:
        show({"report": str(path) if path else "", **report.data()}, True, "")
    elif path:
        show({}, False, f"{report.name}: {report.verdict.title}: {report.verdict.text}\n  report: {path}")
    else:
        show_data(text)
