"""``envbuild fetch``: the inputs of images into the store, or into a folder that an air-gapped site uses as its mirror.

Returns data and texts and prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from envbuild.core.console import RecordingReporter
from envbuild.core.errors import EngineError, EnvbuildError
from envbuild.core.shell import shell_word
from envbuild.core.store.store import Store
from envbuild.core.text import amount, counted
from envbuild.export.built_layout import own_images
from envbuild.lock.cached_inputs import report_site_lines
from envbuild.lock.fetch import fetch
from envbuild.lock.inputs import list_inputs
from envbuild.lock.missing_inputs import combine_errors
from envbuild.lock.model import Lock
from envbuild.lock.offline_mirror import check_site, export_mirror
from envbuild.lock.request import lock_request
from envbuild.lock.resolve import resolve_image
from envbuild.lock.update import ensure_lock
from envbuild.spec import project
from envbuild.spec.resolve import Resolution
from envbuild.spec.workspace import Workspace


def fetch_images(names: Sequence[str], workspace: Workspace, to: Path | None) -> Iterator[tuple[dict[str, Any], str]]:
    """Fetch the inputs of images, locking those without a lock. Yield (data, text) of each image when its inputs are
    complete; with `to`, when they are exported there.

    An image that lacks inputs, or cannot be locked, does not stop the others. Raises what `load_image_spec` and
    `resolve` raise before anything is fetched; at the end what `ensure_lock`, `fetch` and `export_mirror` raise, with
    the findings of all images.
    """
    folder = to.absolute() if to else None
    if folder:
        check_site(folder)
    recorder = RecordingReporter(workspace.reporter)
    workspace = workspace.with_reporter(recorder)
    resolutions = [(name, resolve_image(name, workspace)) for name in names]
    own, failed = own_images(workspace), list[EnvbuildError]()
    for name, resolution in resolutions:
        try:
            lock = ensure_lock(resolution, workspace, own)
            where = lock_request(resolution).source_places()
            fetch(
                lock,
                workspace.store,
                workspace.site,
                workspace.reporter,
                manifest=folder is not None,
                where=where,
                folder=resolution.spec.path.parent,
                own=own,
                contents=resolution.contents,
            )
            if folder:
                row, line = export_inputs(lock, workspace, folder)
                text = f"{line}\n  there:    {offline_command(name, resolution, folder)}"
            else:
                row, line = count_inputs(lock, workspace.store)
                text = f"{line}\n  next:     envbuild make {shell_word(name)}   (needs no network)"
        except EnvbuildError as error:
            recorder.take_warnings()
            failed.append(error)
            if isinstance(error, EngineError):  # a full store is full for the others as well
                break
            continue
        yield {"image": lock.image, **row, "warnings": recorder.take_warnings()}, text
    if len(failed) > 1:
        report_site_lines("all of these images", failed, workspace.site, workspace.reporter)
    if failed:
        raise combine_errors(failed)


def export_inputs(lock: Lock, workspace: Workspace, folder: Path) -> tuple[dict[str, Any], str]:
    """Export the inputs of an image into the mirror `folder`. Return its content as data and as a line."""
    done = export_mirror(lock, workspace.store, folder, workspace.reporter)
    row = {"files": done.files, "bytes": done.size, "new": done.new, "new_bytes": done.new_size}
    new = f"{done.new} of them new ({amount(done.new_size)})" if done.new else "all present before"
    line = f"{lock.image}: {counted(done.files, 'file')}, {amount(done.size)} in {folder}, {new}"
    return {"to": str(folder), **row}, line


def count_inputs(lock: Lock, store: Store) -> tuple[dict[str, Any], str]:
    """Return number and size of the inputs of an image in the store, as data and as a line."""
    digests = {entry.sha256 for entry in list_inputs(lock)}
    size = sum(store.blob(digest).stat().st_size for digest in digests)
    line = f"{lock.image}: {counted(len(digests), 'file')}, {amount(size)}, all in the store {store.root}"
    return {"store": str(store.root), "files": len(digests), "bytes": size}, line


def offline_command(name: str, resolution: Resolution, folder: Path) -> str:
    """Return the command to type at the air-gapped site.

    The folder is enough for an image that ships with envbuild; specs and recipes of a project travel with the project.
    """
    if resolution.spec.path.resolve().is_relative_to(project.SHIPPED / "images"):
        return f"cd {shell_word(folder)} && envbuild make {shell_word(name)}"
    site = shell_word(folder / "site.yaml")
    return f"ln -s {site} site.yaml && envbuild make {shell_word(name)}   (in a copy of this project)"
