"""Resolution with the versions that an earlier lock picked, while they are consistent."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from envbuild.lock.lock_head import read_head
from envbuild.spec import target as targets
from envbuild.spec.image_spec import ImageSpec, fill_versions, load_image_spec
from envbuild.spec.project import Project
from envbuild.spec.resolve import Resolution, resolve, resolve_with_matrix
from envbuild.spec.workspace import Workspace


def resolve_in(spec: ImageSpec, project: Project, forget: Collection[str] = ()) -> Resolution:
    """Return `resolve_with_matrix` with the picks of the image's lock, but for the components (or their
    packages) in `forget`; ``*`` is all.

    Raises ConflictError for versions that cannot work together, UnknownError if no fact covers the combination.
    """
    packages = {recipe.component: recipe.package for recipe in spec.recipes.values()}
    picks = {
        name: version
        for name, version in locked_picks(spec, project).items()
        if not {"*", name, packages.get(name, "")} & set(forget)
    }
    return _with_contents(resolve_with_matrix(spec, project, picks))


def resolve_as_locked(spec: ImageSpec, project: Project) -> Resolution:
    """Return `resolve` with the versions that were picked in the image's lock, without a query of the matrix: enough
    to detect a change."""
    filled = fill_versions(spec, locked_picks(spec, project))
    return _with_contents(resolve(filled, targets.load_target(spec.target, project)))


def _with_contents(resolution: Resolution) -> Resolution:
    """Return a resolution with the content of its project folders, if it has some."""
    if not resolution.spec.dev:
        return resolution
    from envbuild.lock.dev_content import with_contents

    return with_contents(resolution)


def locked_picks(spec: ImageSpec, project: Project) -> Mapping[str, str]:
    """Return component → the version that was picked when the image was locked; nothing without a lock."""
    return read_head(project.lock_path(spec.path)).chosen


def resolve_image(name: str, workspace: Workspace, forget: Collection[str] = ()) -> Resolution:
    """Return the image called `name`, loaded and resolved. `forget`: components whose version is to be picked again."""
    return resolve_in(load_image_spec(name, workspace.project), workspace.project, forget)
