"""``envbuild matrix …``: the facts, their check and their collection."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from envbuild.cli.json_answer import finding_data
from envbuild.cli.options import Json, complete_component, complete_word
from envbuild.cli.options import show as output
from envbuild.core.errors import SpecError

matrix_app = typer.Typer(
    help="The version matrix: the facts that `check` and `make` answer from.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@matrix_app.command("show")
def show(
    component: Annotated[
        str,
        typer.Argument(
            metavar="COMPONENT",
            help="torch, cuda, driver, nccl, neuron-sdk, …",
            autocompletion=complete_component,
        ),
    ] = "",
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMPONENT=VERSION…]",
            help="Only with these: arch=arm64, gpu=H100.",
            autocompletion=complete_word,
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="As Markdown; without a component the page of docs/.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print the facts of a component as a table; without a component, list the components."""
    from envbuild.matrix.answer.table import show_component, show_components
    from envbuild.spec.project import Project

    folders = Project.find().facts()
    result = (
        show_component(component, given or [], folders, markdown) if component else show_components(folders, markdown)
    )
    output(result.data, as_json, result.text)


@matrix_app.command("lint")
def lint(
    months: Annotated[
        int, typer.Option("--older-than", metavar="MONTHS", min=0, help="Warn of sources last checked before that.")
    ] = 12,
    as_json: Json = False,
) -> None:
    """Find facts that contradict each other, sources without content, questions without an answer.

    Exit code 2 if there are any. A source that has not been checked for long is only a warning.
    """
    from datetime import date

    from envbuild.core.console import default_reporter
    from envbuild.matrix.facts.lint import find_old_facts
    from envbuild.matrix.facts.lint import lint_facts as find
    from envbuild.matrix.facts.load import load_facts
    from envbuild.spec.project import Project

    facts = load_facts(Project.find().facts())
    findings, old = find(facts), find_old_facts(facts, months, date.today())
    info = default_reporter()
    for item in old:
        info.warn(str(item))
    rows = sum(len(fact.rows) for fact in facts.facts.values())
    head = f"{len(facts.facts)} facts with {rows} rows: {f'{len(findings)} findings' if findings else 'nothing found'}"
    data = [finding_data(item) | {"warning": item in old} for item in (*findings, *old)]
    output({"findings": data}, as_json, "\n".join([*map(str, findings), head]))
    raise typer.Exit(2 if findings else 0)


@matrix_app.command("refresh")
def refresh(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COLLECTOR…]", help="torch, nvcc, pins, cubins, neuron; default: all of the index."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change; exit code 1 when something would.")
    ] = False,
    allow_fewer: Annotated[bool, typer.Option("--allow-fewer", help="Also when rows are lost.")] = False,
    manifest: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Neuron's release manifest, n2-manifest.json; for neuron.")
    ] = None,
    manifest_from: Annotated[
        str, typer.Option(metavar="TEXT", help="Where that file is from: aws-neuron/aws-neuron-sdk@COMMIT.")
    ] = "",
    to: Annotated[Path | None, typer.Option("--to", metavar="DIR", help="Folder of the derived fact files.")] = None,
    as_json: Json = False,
) -> None:
    """Collect the derived facts again, from the package index as this machine is set up for it: metadata of wheels and,
    by byte ranges, architecture lists, ptxas targets, host compiler limits. Prints what changes, row by row.

    Nothing is downloaded whole, and a refresh that loses rows is refused. ptxas runs in a sandbox.
    """
    from dataclasses import asdict

    from envbuild.build.engines.embedded.lone_program import run_alone
    from envbuild.matrix import FACTS
    from envbuild.matrix.collect.refresh import Manifest
    from envbuild.matrix.collect.refresh import refresh_facts as collect
    from envbuild.spec.workspace import open_workspace

    if manifest is not None and not manifest_from:
        raise SpecError(
            "--manifest needs the origin of the file", hint="--manifest-from aws-neuron/aws-neuron-sdk@COMMIT"
        )
    folder = to or FACTS / "derived"
    if to is None and not os.access(folder, os.W_OK) and not dry_run:
        raise SpecError(
            f"{folder} cannot be written", hint="--to facts/derived of a project, whose facts override those"
        )
    with open_workspace() as workspace:

        def run(program: bytes, words: Sequence[str]) -> tuple[int, str]:
            ran = run_alone(program, words, workspace.store)
            return ran.code, ran.output.decode(errors="replace")

        report = collect(
            names or [],
            workspace.site,
            workspace.reporter,
            folder,
            run,
            write=not dry_run,
            allow_fewer=allow_fewer,
            manifest=Manifest(manifest, manifest_from) if manifest else None,
        )
    output(
        {**asdict(report), "files": [{**asdict(file), "path": str(file.path)} for file in report.files]},
        as_json,
        report.text(),
    )
    raise typer.Exit(1 if dry_run and report.changed else 0)
