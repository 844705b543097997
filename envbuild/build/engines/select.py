"""The choice of an engine, of those in `envbuild.core.engines`."""

from __future__ import annotations

import os
from dataclasses import replace

from envbuild.build.engines.base import Engine, Probe
from envbuild.core.console import Reporter
from envbuild.core.engines import ENGINES
from envbuild.core.errors import EngineError, Finding, SpecError
from envbuild.core.late_import import import_object
from envbuild.core.ownership import find_intrusion, own_users
from envbuild.core.store.store import Store


def load_engine(name: str) -> Engine:
    """Return the engine called `name`, one of ENGINES."""
    engine: Engine = import_object(ENGINES[name])()
    return engine


def other_engine(name: str, store: Store) -> str:
    """Return the first other engine than `name` that can run here, or ""."""
    return next((other for other in ENGINES if other != name and load_engine(other).probe(store).ok), "")


def add_alternative(fix: str, engine: str) -> str:
    """Return a hint that names the engine, too: one that was tried, and works."""
    return ", or: ".join(filter(None, (fix, f"--engine {engine}" if engine else "")))


def warn_of_other_users(store: Store, reporter: Reporter) -> None:
    """Warn root of a store that other users may write, and decide in it what is built on."""
    intrusion = find_intrusion(str(store.root), own_users()) if os.geteuid() == 0 else None
    if intrusion:
        reporter.warn(
            f"root builds in the store {store.root}, which {intrusion.reason}: others decide what is in the image; "
            "for a store of root alone: export ENVBUILD_STORE=/a/path"
        )


def choose_engine(name: str, store: Store, reporter: Reporter) -> Engine:
    """Return the engine called `name`, or with ``auto`` the first whose probe passes; the reason is reported, and
    the caution of one that is not the first.

    Raises SpecError for an unknown name, EngineError with every probe's result. A hint names an engine only if it was
    tried, and works here."""
    warn_of_other_users(store, reporter)
    if name not in ENGINES and name != "auto":
        raise SpecError(f"no engine is called {name!r}", hint=f"the engines are: auto, {', '.join(ENGINES)}")
    failed: list[Probe] = []
    for candidate in map(load_engine, ENGINES if name == "auto" else [name]):
        probe = candidate.probe(store)
        if probe.ok:
            why = f"; {'; '.join(f'{other.engine} cannot: {other.reason}' for other in failed)}" if failed else ""
            reporter.info(f"engine: {candidate.name} ({probe.detail}){why}")
            if failed and probe.caution:
                reporter.warn(probe.caution)
            return candidate
        failed.append(probe)
    if name != "auto":
        failed = [replace(probe, fix=add_alternative(probe.fix, other_engine(name, store))) for probe in failed]
    raise EngineError.of(
        Finding(f"engine {probe.engine} cannot run here: {probe.step}: {probe.reason}", str(store.root), probe.fix)
        for probe in failed
    )
