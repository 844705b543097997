"""A single command in an image or in layer trees, with its output: a session of one command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from envbuild.build.engines.embedded.session import Bind, open_session
from envbuild.core.console import Reporter
from envbuild.core.store.store import Store


def run_captured(
    root: Sequence[Path] | Path,
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None,
    store: Store,
    network: bool = False,
    binds: Sequence[Bind] = (),
    timeout: float | None = None,
    reporter: Reporter | None = None,
    observe: Callable[[Mapping[str, bool]], object] | None = None,
) -> tuple[int, bytes]:
    """Return exit code and output. `reporter` gets the notes, `observe` the protections that were in force."""
    notes: list[str] = []
    with open_session(root, env, store, network=network, binds=binds, notes=notes) as session:
        ran = session.run(argv, timeout)
    for note in [*notes, *ran.notes] if reporter else ():
        reporter.info(note)  # type: ignore[union-attr]
    if observe:
        observe(ran.protection)
    return ran.code, ran.output
