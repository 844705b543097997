"""The upgrade of single Python packages of a lock, while everything else in it remains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from packaging.utils import canonicalize_name

from envbuild.core.errors import Finding, SpecError
from envbuild.lock.model import Lock
from envbuild.lock.request import LockRequest, lock_request
from envbuild.lock.resolve import resolve_in
from envbuild.lock.update import current_lock
from envbuild.lock.upgrades import upgrade_hint
from envbuild.spec.image_spec import ImageSpec
from envbuild.spec.workspace import Workspace


def require_python_packages(spec: ImageSpec, workspace: Workspace, wanted: Iterable[str]) -> frozenset[str]:
    """Return `wanted` in the spelling of the lock. Raises LockError if an image has no current lock, SpecError for a
    name that is not a Python package in it."""
    resolution = resolve_in(spec, workspace.project)
    lock, names = current_lock(resolution, workspace), frozenset(wanted)
    check_python_upgrades(spec.name, lock, names, lock_request(resolution))
    return frozenset(str(canonicalize_name(name)) for name in names)


def check_python_upgrades(name: str, lock: Lock, wanted: Iterable[str], request: LockRequest) -> None:
    """Raise SpecError with every name in `wanted` that is not a Python package of an index in the lock of the image
    `name`, and with the command that upgrades it, if there is one."""
    python = {file.name for file in lock.python_files.values()}
    debian = {file.name for file in lock.debian.values()}
    components, layers = (request.spec.get(key) or {} for key in ("components", "layers"))
    named = components.items() if isinstance(components, Mapping) else ()
    packages = {str(layer): str(package) for layer, package in named}
    findings = []
    for text in sorted(set(wanted)):
        if str(canonicalize_name(text)) in python:
            continue
        if text in debian:
            message = f"'{text}' is a Debian package: --upgrade-package takes Python packages"
            hint = f"envbuild lock {name} --upgrade {text}"
        elif text in lock.sources:
            message = f"'{text}' is a source: --upgrade-package takes Python packages"
            hint = f"envbuild lock {name} --upgrade {text}"
        elif isinstance(layers, Mapping) and text in layers and packages.get(text) not in python:
            message = f"'{text}' is a layer, and not of a Python package: --upgrade-package takes Python packages"
            hint = f"write the version under layers: in images/{name}.yaml, then: envbuild lock {name}"
        else:
            message = f"the lock has no Python package '{text}' to upgrade"
            hint = upgrade_hint(text, python, packages, "--upgrade-package")
        findings.append(Finding(message, hint=hint))
    if findings:
        raise SpecError.of(findings)
