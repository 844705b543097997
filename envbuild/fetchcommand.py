"""``envbuild fetch``: the inputs of images into the store, or into a folder that an air-gapped site uses as its mirror.

Returns data and a text and prints nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from envbuild import make as steps
from envbuild import project
from envbuild.carry import carry, check_site
from envbuild.console import amount
from envbuild.errors import Finding, InputError
from envbuild.fetch import fetch
from envbuild.heard import Heard
from envbuild.image import Result
from envbuild.resolve import Resolution, lock_request
from envbuild.supply import inputs
from envbuild.workspace import Workspace


def fetch_images(names: Sequence[str], workspace: Workspace, to: Path | None) -> Result:
    """Fetch the inputs of images, locking those without a lock; with `to`, lay them out there.

    Raises InputError with every input, of all images, that cannot be had, or without which one cannot be locked: the
    images that lack none are in the folder by then. Raises what `load`, `resolve`, `lock` and `carry` raise.
    """
    folder = to.absolute() if to else None
    if folder:
        check_site(folder)
    heard = Heard(workspace.talk)
    workspace = replace(workspace, talk=heard)
    resolutions = [(name, steps.resolved(name, workspace)) for name in names]
    rows: list[dict[str, Any]] = []
    lines: list[str] = []
    lacking: list[Finding] = []
    with workspace.store.lock("gc", shared=True):
        for name, resolution in resolutions:
            try:
                lock = steps.locked(resolution, workspace)
                where = lock_request(resolution).places()
                fetch(lock, workspace.store, workspace.site, workspace.talk, manifest=folder is not None, where=where)
            except InputError as error:
                lacking += [finding for finding in error.findings if finding not in lacking]
                continue
            if folder:
                done = carry(lock, workspace.store, folder, workspace.talk)
                row = {"files": done.files, "bytes": done.size, "new": done.new, "new_bytes": done.new_size}
                rows.append({"image": lock.image, "to": str(folder), "warnings": heard.taken(), **row})
                held = f"{done.files} files, {amount(done.size)} in {folder}"
                new = f"{done.new} of them new ({amount(done.new_size)})" if done.new else "all there before"
                lines.append(f"{lock.image}: {held}, {new}\n  there:    {there(name, resolution, folder)}")
            else:
                digests = {entry.sha256 for entry in inputs(lock)}
                size = sum(workspace.store.blob(digest).stat().st_size for digest in digests)
                row = {"files": len(digests), "bytes": size}
                store = str(workspace.store.root)
                rows.append({"image": lock.image, "store": store, "warnings": heard.taken(), **row})
                held = f"{len(digests)} files, {amount(size)}, all in the store {workspace.store.root}"
                lines.append(f"{lock.image}: {held}\n  next:     envbuild make {name}   (needs no network)")
    if lacking:
        raise InputError.of(lacking)
    return Result(rows, "\n".join(lines))


def there(name: str, resolution: Resolution, folder: Path) -> str:
    """The command at the air-gapped site. The folder itself will do for an image that ships with envbuild; the specs
    and recipes of a project travel with the project."""
    if resolution.spec.path.resolve().is_relative_to(project.SHIPPED / "images"):
        return f"cd {shlex.quote(str(folder))} && envbuild make {name}"
    site = shlex.quote(str(folder / "site.yaml"))
    return f"ln -s {site} site.yaml && envbuild make {name}   (in a copy of this project)"
