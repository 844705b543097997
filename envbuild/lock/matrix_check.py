"""A lock and the version matrix: a check of the locked versions, and the record of the facts that they depend on."""

from __future__ import annotations

from dataclasses import replace

from envbuild.lock.model import Lock
from envbuild.lock.request import lock_request
from envbuild.matrix.answer.report import caution_lines
from envbuild.matrix.answer.verdict import Answer
from envbuild.matrix.facts.compile import load_fact_table
from envbuild.matrix.facts.domain import newest_packages
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.spec.matrix_request import shipped_versions
from envbuild.spec.pick_versions import check_locked_versions
from envbuild.spec.resolve import Resolution
from envbuild.spec.workspace import Workspace


def check_lock(resolution: Resolution, lock: Lock, workspace: Workspace) -> Answer:
    """Return the matrix's answer for a lock's versions; log a warning for each caution.

    Raises ConflictError, UnknownError.
    """
    matrix = load_fact_table(workspace.project.facts())
    answer = check_locked_versions(resolution.spec, resolution.target, matrix, lock.settled)
    for line in caution_lines(answer):
        workspace.reporter.warn(line)
    return answer


def known_packages(resolution: Resolution, workspace: Workspace) -> dict[str, str]:
    """Return Python package → the newest version that the facts know; nothing if the spec waives that versions must be
    known."""
    if any(waiver.fact == "unheard" for waiver in resolution.waivers):
        return {}
    return newest_packages(load_fact_table(workspace.project.facts()))


def record_matrix_versions(resolution: Resolution, lock: Lock, workspace: Workspace) -> Lock:
    """Return the lock with the versions that the matrix knows, those that were picked, and the facts behind them.
    Warns when the package index has a newer torch than the facts know. Raises as `check_lock`."""
    from envbuild.lock.component_versions import (
        shipped_python,  # a lock that is only read does not load what follows
    )

    matrix = load_fact_table(workspace.project.facts())
    shipped = shipped_python(lock_request(resolution), lock)
    lock = replace(lock, chosen=resolution.chosen, settled=shipped_versions(shipped, matrix, workspace.reporter.warn))
    lock = replace(lock, facts=check_lock(resolution, lock, workspace).facts)
    if "torch" in lock.settled:
        warn_of_newer_torch(matrix, workspace)
    return lock


def warn_of_newer_torch(matrix: FactTable, workspace: Workspace) -> None:
    """Report releases of torch on the package index that are newer than the facts. Raises InputError."""
    from envbuild.matrix.answer.newer_releases import newer_than_facts
    from envbuild.net.python_index import PackageIndex
    from envbuild.net.transport import Transport

    for line in newer_than_facts(PackageIndex(Transport(workspace.site.network()), workspace.site.python()), matrix):
        workspace.reporter.warn(line)
