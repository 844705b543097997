"""``envbuild compile``: the Containerfile of an image, and its build context."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envbuild.cli.options import Json, Name, show, show_data
from envbuild.core.shell import shell_word


def compile_command(
    name: Name,
    context: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write the build context (all inputs) into this folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the Containerfile of an image; with --context, everything that `buildah build` or `docker build` needs,
    without network.

    An image without a lock is printed too, without the files of its inputs.
    """
    from envbuild.build.plan.containerfile import containerfile
    from envbuild.build.plan.planner import make_plan
    from envbuild.lock.resolve import resolve_image
    from envbuild.lock.update import current_lock, draft_lock
    from envbuild.spec.workspace import open_workspace

    with open_workspace(names=[name]) as workspace:
        resolution = resolve_image(name, workspace)
        has_lock = workspace.project.lock_path(resolution.spec.path).is_file() or context is not None
        lock = current_lock(resolution, workspace) if has_lock else draft_lock(resolution)
        plan = make_plan(resolution, lock)
        text = containerfile(plan, locked=has_lock)
        if not has_lock:
            workspace.reporter.info(f"{name} has no lock; next: envbuild lock {name}")
        if context is not None:
            from envbuild.build.engines.build_context import write_context
            from envbuild.export.built_layout import own_images
            from envbuild.lock.fetch import fetch

            at, folder, contents = workspace, resolution.spec.path.parent, resolution.contents
            own = own_images(at)
            fetch(lock, at.store, at.site, at.reporter, folder=folder, own=own, contents=contents)
            write_context(plan, workspace.store, context)
            workspace.reporter.info(
                "next: buildah build --isolation chroot "
                f"-f {shell_word(context / 'Containerfile')} {shell_word(context)}"
            )
    if as_json:
        show({"image": lock.image, "containerfile": text, "context": str(context or "")}, True, "")
    else:
        show_data(text)
