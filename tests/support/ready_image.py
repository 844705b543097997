"""An image by hand that can be built, without inputs to obtain."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from envbuild.build.engines.base import BuildOptions


def ready_image(engine: Any, plan: Any, lock: Any, options: BuildOptions | None = None) -> Any:
    """Return what `envbuild.make` builds, with the parts that building and writing need."""
    inputs = SimpleNamespace(obtain=lambda: None)
    return SimpleNamespace(engine=engine, plan=plan, lock=lock, build=options or BuildOptions(), inputs=inputs)
