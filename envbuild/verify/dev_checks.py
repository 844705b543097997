"""Checks of the project folders of a spec (`dev:`) in the finished image."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from envbuild.spec.dev_project import DevProject
from envbuild.spec.recipe import VENV, Check
from envbuild.verify.declared_contents import Expectations

PROGRAM = """\
import importlib, importlib.metadata, sys
place, name, version, *modules = sys.argv[1:]
assert any(path == place or path.startswith(place + "/") for path in sys.path), f"{place} is not searched"
for module in map(importlib.import_module, modules):
    places = [module.__file__ or "", *getattr(module, "__path__", [])]
    assert any(path.startswith(place + "/") for path in places), f"{module.__name__} is imported from {places}"
if version:
    assert importlib.metadata.version(name) == version, importlib.metadata.version(name)
print("imported")
"""


def dev_checks(projects: Sequence[DevProject]) -> list[Check]:
    """Return a check of each project: its modules are imported, and from its folder; its version is known."""
    return [
        Check(
            f"dev: {' and '.join(project.metadata.modules) or project.name} of {project.label}",
            shlex.join(
                [
                    *(f"{VENV}/bin/python", "-c", PROGRAM),
                    *(project.place, project.name, project.metadata.version, *project.metadata.modules),
                ]
            ),
            "imported",
        )
        for project in projects
    ]


def with_projects(expected: Expectations, versions: Mapping[str, str]) -> Expectations:
    """Return the expectations with the distributions of projects: name → version."""
    return replace(expected, python={**expected.python, **{name: text for name, text in versions.items() if text}})


def project_versions(resolution: str) -> dict[str, str]:
    """Return name → version of the projects that the resolution.json of an image names."""
    try:
        value: Any = json.loads(resolution)
        return {str(item["name"]): str(item["version"]) for item in value.get("dev", [])}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
