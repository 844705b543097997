"""Choosing an engine. An engine is a module of this package with a class `ENGINE`; `PREFERENCE` orders them, lower
first."""

from __future__ import annotations

import importlib
import pkgutil

from envbuild import engines
from envbuild.console import Talk
from envbuild.engines.base import Engine, Probe
from envbuild.errors import EngineError, Finding, SpecError
from envbuild.store import Store

NOT_ENGINES = ("asroot", "base", "choose", "context")


def available() -> dict[str, Engine]:
    """All engines by name, preferred first."""
    modules = [
        importlib.import_module(f"{engines.__name__}.{info.name}")
        for info in pkgutil.iter_modules(engines.__path__)
        if info.name not in NOT_ENGINES
    ]
    return {module.ENGINE.name: module.ENGINE() for module in sorted(modules, key=lambda module: module.PREFERENCE)}


def choose(name: str, store: Store, talk: Talk) -> Engine:
    """The engine called `name`, or with ``auto`` the first whose probe passes, saying why. Raises SpecError for
    an unknown name, EngineError with every probe's result."""
    known = available()
    if name not in known and name != "auto":
        raise SpecError(f"no engine is called {name!r}", hint=f"the engines are: auto, {', '.join(known)}")
    failed: list[Probe] = []
    for candidate in known.values() if name == "auto" else [known[name]]:
        probe = candidate.probe(store)
        if probe.ok:
            why = f"; {'; '.join(f'{other.engine} cannot: {other.reason}' for other in failed)}" if failed else ""
            talk.say(f"engine: {candidate.name} ({probe.detail}){why}")
            return candidate
        failed.append(probe)
    raise EngineError.of(
        Finding(f"engine {probe.engine} cannot run here: {probe.step}: {probe.reason}", str(store.root), probe.fix)
        for probe in failed
    )
