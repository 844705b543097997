"""The report of an image of the project: its spec, its lock, the records of its build, its evidence."""

from __future__ import annotations

from pathlib import Path

from envbuild.core.errors import EnvbuildError
from envbuild.core.shell import shell_word
from envbuild.core.text import amount
from envbuild.lock.model import lock_digest
from envbuild.report.bandwidth_rows import floor_rows, no_bandwidth, series_rows
from envbuild.report.build_rows import build_steps, layer_parts, spec_components
from envbuild.report.evidence_rows import (
    check_rows,
    failure_rows,
    known_results,
    known_seconds,
    measured_notes,
    tier_rows,
    verify_steps,
)
from envbuild.report.file_facts import lock_date
from envbuild.report.known_image import KnownImage, MatrixAnswer, find_known
from envbuild.report.lock_rows import component_rows, origin_rows, package_rows
from envbuild.report.matrix_rows import matrix_faults, matrix_part
from envbuild.report.model import BANDWIDTH, LAYERS, PACKAGES, TIMES, Report
from envbuild.report.start_lines import start_lines
from envbuild.report.verdict import judge
from envbuild.spec.resolve import Resolution
from envbuild.spec.workspace import Workspace


def report_project_image(name: str, workspace: Workspace, matrix: MatrixAnswer) -> Report:
    """Return the report of the image `name` of the project. Raises SpecError for a spec or a target with mistakes."""
    known = find_known(name, workspace, matrix)
    spec, lock, plan = known.spec, known.lock, known.plan
    command = f"envbuild check {shell_word(name)}"
    results = known_results(known.evidence, known.measured, known.target)
    faults = (
        *failure_rows(results),
        *matrix_faults(matrix.answer, matrix.refusals, command),
        *known.faults,
    )
    tiers = tier_rows(results, known.no_evidence)
    checks = check_rows(results, known_seconds(known.evidence, known.measured))
    built = known.made is not None
    parts = layer_parts(known.made, plan, workspace.store) if known.made and plan else ()
    steps = build_steps(plan, workspace.store) if plan else ()
    no_lock = f"the image has no current lock: envbuild lock {shell_word(name)}"
    not_built = f"not built: envbuild make {shell_word(name)}" if lock else f"not built; {no_lock}"
    return Report(
        name=spec.name,
        description=spec.description,
        verdict=judge(faults, tiers, checks, known.no_evidence, "not verified" if built else "not built"),
        facts=tuple(facts(known)),
        faults=faults,
        checks=checks,
        tiers=tiers,
        components=component_rows(lock) if lock else spec_components(known, matrix.answer),
        origins=origin_rows(lock) if lock else (),
        parts=parts,
        steps=(*steps, *verify_steps(known.evidence)),
        matrix=matrix_part(matrix.answer, matrix.title, matrix.refusals, known.target),
        series=series_rows(known.measured, known.target),
        floors=floor_rows(known.target),
        packages=package_rows(lock, known.resolution.contents if known.resolution else ()) if lock else (),
        start=start_lines(name, workspace),
        notes=(
            *(known.evidence.messages if known.evidence else ()),
            *measured_notes(known.measured, "these bytes"),
            *remarks(known.resolution),
        ),
        epoch=lock.epoch if lock else 0,
        missing={
            LAYERS: not_built,
            TIMES: not_built,
            PACKAGES: no_lock,
            BANDWIDTH: no_bandwidth(known.target, known.measured),
        },
    )


def facts(known: KnownImage) -> list[tuple[str, str]]:
    """Return the rows of the head: target, base, lock, file."""
    spec, lock, made = known.spec, known.lock, known.made
    rows = [("target", f"{spec.target}: {known.target.description}"), ("base", spec.base), ("python", spec.python)]
    if known.target.driver:
        rows.append(("driver", f"{known.target.driver} or newer: {known.target.driver_because}"))
    if lock:
        rows += [("lock", lock_digest(lock)), ("inputs until", lock_date(lock.epoch))]
        rows += [(f"made with {tool}", version) for tool, version in sorted(lock.tools.items())]
    if made:
        size = file_size(Path(made.artifact))
        rows += [("squashfs", made.artifact), ("sha256", made.sha256), ("size", size), ("engine", made.engine)]
    return rows


def file_size(path: Path) -> str:
    """Return the size of a file as text; empty if it is not available."""
    try:
        return amount(path.stat().st_size)
    except OSError:
        return ""


def remarks(resolution: Resolution | None) -> tuple[str, ...]:
    """Return the remarks of the recipes about themselves."""
    try:
        return tuple(resolution.remarks()) if resolution else ()
    except EnvbuildError as error:  # a recipe of the project that fails
        return (error.message,)
