"""``envbuild check NAME``: the answer about an image, as it is locked or as its spec requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from envbuild.cli.check_result import CheckResult
from envbuild.cli.check_words import why_not_newer
from envbuild.core.errors import ConflictError, Finding, SpecError
from envbuild.lock.lock_head import LockHead, read_head
from envbuild.lock.request import lock_request
from envbuild.matrix.answer.check import check
from envbuild.matrix.answer.verdict import Answer
from envbuild.matrix.facts.compile import load_fact_table
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.solve.request import locked_asks, override_asks
from envbuild.spec.compatible_layers import check_compatible
from envbuild.spec.image_spec import ImageSpec, fill_versions, load_image_spec
from envbuild.spec.matrix_request import image_request
from envbuild.spec.pick_versions import answer_with_picks, image_waivers, satisfied_conditions, with_spec_hints
from envbuild.spec.project import Project
from envbuild.spec.resolve import resolve
from envbuild.spec.target import Target, load_target
from envbuild.spec.workspace import with_site_drivers


def check_images(
    names: Sequence[str], why: str = "", host: Mapping[str, Any] | None = None
) -> tuple[list[CheckResult], list[Finding]]:
    """Return the answers for images, and the findings of those that cannot be read.

    An image is checked as it is locked, or as its spec requests if it has no current lock; `why` uses the specs.
    """
    results: list[CheckResult] = []
    wrong: list[Finding] = []
    for name in names:
        try:
            results.append(check_image(name, why, host))
        except SpecError as error:
            wrong += error.findings
    return results, wrong


def check_image(name: str, why: str = "", host: Mapping[str, Any] | None = None) -> CheckResult:
    """Return the answer for one image. A refusal of its recipes is reported alone: it is the plainer answer.

    host: the facts of a machine, whose versions replace those of the target; the title names those that it lacks.

    Raises SpecError.
    """
    project = with_site_drivers(Project.of(name))
    matrix = matrix_of(project.facts())
    spec = load_image_spec(name, project)
    target = load_target(spec.target, project)
    lock = read_head(project.lock_path(spec.path))
    asks = image_request(spec, target, matrix)
    where = ""
    if host is not None:
        from envbuild.verify.host_comparison import assumed_versions, host_asks

        assumed = assumed_versions(asks, host, matrix)
        where = " on this machine" + (
            f", with the target's {', '.join(assumed)}, which it does not have" if assumed else ""
        )
        asks = override_asks(asks, host_asks(host, matrix)[0])
    refusals: tuple[Finding, ...] = ()
    try:
        current = is_current(lock, spec, target)
    except ConflictError as error:
        current, refusals = False, error.findings
    answer = Answer("conflict", asks)
    if current:
        locked = override_asks(asks, locked_asks(lock.settled, matrix))
        answer = check(matrix, locked, image_waivers(spec), satisfied_conditions(spec))
    elif not refusals:
        answer = answer_with_picks(spec, asks, matrix, lock.chosen)
    if not (refusals or current):
        refusals = refused(spec, target, answer)
    if not refusals:
        answer = with_spec_hints(answer, spec, target, matrix)
    title = f"{spec.name}{where} ({'as locked' if current else 'as its spec requests; it has no current lock'})"
    because = why_not_newer(matrix, asks, why, image_waivers(spec)) if why and not refusals else ()
    return CheckResult(matrix, answer, title, spec.name, refusals, why, because)


def refused(spec: ImageSpec, target: Target, answer: Answer) -> tuple[Finding, ...]:
    """Return why the recipes are incompatible with the image, given the versions that were picked."""
    try:
        check_compatible(fill_versions(spec, answer.chosen) if not answer.exit_code else spec, target)
    except ConflictError as error:
        return error.findings
    return ()


@cache
def matrix_of(folders: tuple[Path, ...]) -> FactTable:
    """Return the matrix of these folders, loaded once for all images of a command."""
    return load_fact_table(folders)


def is_current(lock: LockHead, spec: ImageSpec, target: Target) -> bool:
    """Return whether a lock matches its spec. Raises ConflictError if the recipes are incompatible."""
    request = lock_request(resolve(fill_versions(spec, lock.chosen), target)) if lock.inputs else None
    return request is not None and request.is_answered_by(lock.inputs)
