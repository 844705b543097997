"""Objects of modules that are imported only when they are used: tables of kinds name them as ``module:object``."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def import_object(name: str) -> Any:
    """Return the object called ``module:object``."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
