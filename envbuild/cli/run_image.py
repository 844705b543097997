"""``envbuild run``: a command in a finished image on this machine, in the sandbox that built it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.cli.writable_dev import list_work_trees, report_new, writable_mounts
from envbuild.core.errors import EngineError, SpecError
from envbuild.core.paths import expand_home
from envbuild.core.shell import shell_word
from envbuild.core.text import human_list
from envbuild.export.built_image import load_built_image, read_image_record
from envbuild.lock.dev_repositories import project_mounts
from envbuild.lock.resolve import resolve_image
from envbuild.lock.update import current_lock
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.workspace import Workspace
from envbuild.verify.contents.squashfs_path import find_squashfs_file

if TYPE_CHECKING:
    from envbuild.build.plan.units import Plan
    from envbuild.spec.resolve import Resolution

# A squashfs file starts as enroot starts it: its /etc/environment, then its /etc/rc under a login shell.
START = """\
if [ -r /etc/environment ]; then while IFS= read -r line; do export "$line"; done < /etc/environment; fi
if [ -s /etc/rc ]; then exec /bin/sh -l /etc/rc "$@"; fi
if [ $# -gt 0 ]; then exec "$@"; fi
exec /bin/sh
"""
READ_ONLY = "ro"


def run_image(
    name: str,
    command: Sequence[str],
    workspace: Workspace,
    *,
    network: bool,
    binds: Sequence[str],
    live: bool = False,
    writable: bool = False,
) -> int:
    """Run a command in a built image or a squashfs file. Return its exit code.

    live: build the layers of an image that changed, and run in them; no file of it is written. writable: project
    folders may be written.
    """
    from envbuild.build.engines.embedded.run_command import run_in_root
    from envbuild.build.engines.embedded.sandbox import warn_without_filter
    from envbuild.squashfs.pack.unpack import ensure_trees

    warn_without_filter(workspace.reporter)
    mounts = [parse_bind(bind) for bind in binds]
    file = find_squashfs_file(name)
    if file and live:
        hint = "name an image of the project: envbuild run NAME --live -- CMD"
        raise SpecError(f"{name} is a finished file, and --live builds an image", hint)
    if file:
        argv = ["/bin/sh", "-c", START, "sh", *command]
        store, reporter = workspace.store, workspace.reporter
        return run_in_root(file, argv, env=None, store=store, network=network, binds=mounts, reporter=reporter)
    plan, layers = current_layers(name, workspace, live=live)
    spec = load_image_spec(name, workspace.project)
    projects = [(project.folder, project.place) for project in spec.dev]
    missing: list[Path] = []
    work_trees: list[Path] = []
    if writable:
        own, missing = writable_mounts(projects, workspace.project, spec.files, workspace.store.root)
        work_trees = list_work_trees(projects)
    else:
        own = project_mounts(projects)
    mounts = [*own, *mounts]
    ensure_trees(workspace.store, layers)
    trees = [workspace.store.layer_tree(layer) for layer in layers]
    argv = list(command) or list(plan.config.cmd)
    before = [tree.stat() for tree in trees]
    try:
        return run_in_root(trees, argv, env=dict(plan.config.env), store=workspace.store, network=network, binds=mounts)
    finally:
        if gone := [str(tree) for tree, status in zip(trees, before, strict=True) if not is_same(tree, status)]:
            text = f"{human_list(gone, 2)} was removed while the command ran: it saw only a part of the image"
            workspace.reporter.warn(f"{text}. The next run makes it again")
        if writable:
            report_new(missing, work_trees, projects, workspace.reporter)


def is_same(tree: Path, before: os.stat_result) -> bool:
    """Return whether a folder is the one that it was before."""
    try:
        return os.path.samestat(tree.stat(), before)
    except OSError:
        return False


def current_layers(name: str, workspace: Workspace, *, live: bool = False) -> tuple[Plan, list[str]]:
    """Return the plan and the layers (diff ids) of an image; build them if no file of it is current.

    live: lock and build what changed. Only an edit of project folders, which are mounted, needs neither."""
    if live and not load_image_spec(name, workspace.project).dev:
        return make_live(name, workspace, renew=True)
    resolution = resolve_image(name, workspace).mounted()
    found = read_image_record(resolution, workspace) is not None
    if live and not (found and is_base_current(resolution, workspace)):
        return make_live(name, workspace, renew=True)
    if not found:
        image = resolution.spec.name
        current_lock(resolution, workspace)  # without one nothing runs
        workspace.reporter.info(f"no current file of {image}: running in its layers (envbuild make {image} writes it)")
        return make_live(name, workspace, renew=False)
    try:
        built = load_built_image(name, workspace, mounted=True)
    except EngineError as error:
        workspace.reporter.info(f"{error.message}; making it again")
        return make_live(name, workspace, renew=live)
    return built.plan, [layer.diff_id for layer in built.layers]


def is_base_current(resolution: Resolution, workspace: Workspace) -> bool:
    """Return whether the base of an image, if it is a file or another image of the project, is that of its lock. Raises
    LockError for a base that is not built."""
    from envbuild.make import LockRule, check_base

    return not check_base(resolution, workspace, LockRule.RENEW)


def make_live(name: str, workspace: Workspace, *, renew: bool) -> tuple[Plan, list[str]]:
    """Build what changed of an image, with the caches of the site; return its plan and its layers (diff ids).

    renew: lock it again if its lock is missing or outdated, which else is an error."""
    from envbuild.make import LockRule, Options, make_layers
    from envbuild.publish.make_and_share import site_caches

    rule = LockRule.RENEW if renew else LockRule.REQUIRE
    plan, built = make_layers(name, workspace, Options(caches=site_caches(workspace), lock=rule, mounted=True))
    return plan, [layer.diff_id for layer in built.layers]


def parse_bind(bind: str) -> tuple[str, str, bool]:
    """Return ``SRC[:DST[:ro]]`` as two absolute paths, and whether the mount is read-only.

    Raises SpecError if SRC does not exist, DST is not absolute, or another word than ``ro`` follows.
    """
    source, _, rest = bind.partition(":")
    target, colon, option = rest.partition(":")
    path = expand_home(source).absolute()
    if not path.exists():
        raise SpecError(f"--bind {bind}: {path} does not exist", hint="--bind takes a folder of this machine")
    if target == READ_ONLY and not colon:
        raise SpecError(f"--bind {bind}: DST is missing", hint=f"--bind {shell_word(f'{source}:{path}:{READ_ONLY}')}")
    if target and not target.startswith("/"):
        raise SpecError(
            f"--bind {bind}: {target!r} is not an absolute path", hint=f"--bind {shell_word(f'{source}:/{target}')}"
        )
    target = target or str(path)
    if colon and option != READ_ONLY:
        bound = f"{source}:{target}"
        hint = f"--bind {shell_word(bound)} (writable), or --bind {shell_word(f'{bound}:{READ_ONLY}')}"
        raise SpecError(f"--bind {bind}: unknown option {option!r}", hint=hint)
    return str(path), target, bool(colon)
