"""The checks before the first download of a build: places, logins, disk and memory, all findings together."""

from __future__ import annotations

from collections.abc import Sequence

from envbuild.build.engines import resources
from envbuild.build.forecast import Forecast
from envbuild.build.plan.units import Unit
from envbuild.core.errors import FREE_SOME, EngineError, EnvbuildError, InputError
from envbuild.core.store.store import Store
from envbuild.core.text import amount
from envbuild.lock.cached_inputs import report_already_cached
from envbuild.lock.inputs import Input, list_inputs
from envbuild.lock.missing_inputs import combine_errors
from envbuild.lock.model import Lock, PythonFile
from envbuild.lock.request import LockRequest
from envbuild.spec.workspace import Workspace


def check_before_fetch(
    forecast: Forecast,
    units: Sequence[Unit],
    wanted: Sequence[Input],
    lock: Lock,
    request: LockRequest,
    workspace: Workspace,
) -> None:
    """Check that a build can begin. Raises one error with everything that is missing: InputError if an input is,
    else EngineError.

    wanted: the inputs that the store lacks
    """
    errors: list[EnvbuildError] = []
    try:
        check_inputs(wanted, lock, request, workspace)
    except InputError as error:
        errors.append(error)
    try:
        resources.check_memory(units, 0.9 * resources.memory())
    except EngineError as error:
        errors.append(error)
    if forecast.least > forecast.free:
        errors.append(disk_error(forecast, workspace.store))
    if errors:
        report_already_cached(
            lock.image, list_inputs(lock), workspace.store, workspace.site, workspace.reporter, errors
        )
        raise combine_errors(errors)
    if forecast.peak > forecast.free:
        workspace.reporter.warn(
            f"the store {workspace.store.root} may get full: about {amount(forecast.peak)} are needed at most, and "
            f"{amount(forecast.free)} are free; {FREE_SOME}"
        )


def disk_error(forecast: Forecast, store: Store) -> EngineError:
    """Return the error for a disk that the inputs and layers of a build do not fit on."""
    needed, free = amount(forecast.least), amount(forecast.free)
    return EngineError(
        f"the store {store.root} has too little space for this build: at least {needed} are needed, and {free} are "
        "free",
        hint=FREE_SOME,
    )


def check_inputs(wanted: Sequence[Input], lock: Lock, request: LockRequest, workspace: Workspace) -> None:
    """Check that the inputs that are not wheels of the project have places that answer. Raises InputError."""
    from envbuild.lock.place_checks import check_places  # with a network client
    from envbuild.lock.python.local_projects import is_local

    remote = [entry for entry in wanted if not (isinstance(entry, PythonFile) and is_local(entry))]
    manifest = lock.base_image.digest if lock.base_image else ""
    if remote:
        store, site, reporter = workspace.store, workspace.site, workspace.reporter
        check_places(lock.image, remote, store, site, reporter, request.source_places(), manifest)
