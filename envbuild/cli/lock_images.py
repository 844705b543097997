"""``envbuild lock``: the inputs of images into their locks.

Returns data and texts and prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from envbuild.core.console import RecordingReporter
from envbuild.core.errors import EnvbuildError
from envbuild.core.text import counted
from envbuild.export.built_layout import open_base_layout
from envbuild.lock.resolve import resolve_image
from envbuild.lock.update import update_lock
from envbuild.spec.workspace import Workspace


def lock_images(
    names: Sequence[str], workspace: Workspace, upgrade: frozenset[str], *, refresh: bool, fresh: bool
) -> Iterator[tuple[dict[str, Any], str]]:
    """Lock images, one after the other. Yield (data, text) of each when its lock is written.

    An image that cannot be locked does not stop the others. Raises at the end what `load`, `resolve` and `make_lock`
    raise, with the findings of all images, as the error of the first.
    """
    recorder = RecordingReporter(workspace.reporter)
    failed: list[EnvbuildError] = []
    for name in names:
        workspace = workspace.with_reporter(recorder)  # each image has the warnings of its own
        try:
            resolution = resolve_image(name, workspace, forget=["*"] if fresh else upgrade)
            lock = update_lock(
                resolution,
                workspace,
                upgrade=upgrade,
                refresh=refresh,
                fresh=fresh,
                own=partial(open_base_layout, workspace),
            )
        except EnvbuildError as error:
            recorder.take_warnings()
            failed.append(named(error, name) if len(names) > 1 else error)
            continue
        debian, python, sources = len(lock.debian), len(lock.python_files), len(lock.sources)
        path = str(workspace.project.lock_path(resolution.spec.path))
        row = {"image": name, "path": path, "debian": debian, "python": python, "sources": sources}
        counts = f"{counted(debian, 'Debian package')}, {counted(python, 'Python file')}, {counted(sources, 'source')}"
        yield (
            row | {"warnings": recorder.take_warnings()},
            f"{name}: {counts} in {path}\n  next:     envbuild make {name}",
        )
    if failed:
        raise type(failed[0]).of(dict.fromkeys(finding for error in failed for finding in error.findings))


def named(error: EnvbuildError, name: str) -> EnvbuildError:
    """Return the error with the name of the image in front of findings without a place in its spec."""
    return type(error).of(
        finding if finding.where else replace(finding, message=f"{name}: {finding.message}")
        for finding in error.findings
    )
