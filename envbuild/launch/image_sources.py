"""The image of a launch: an image of the project, a squashfs file, or an image of a registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from envbuild.core.errors import ConflictError, LockError, SpecError
from envbuild.core.shell import shell_word
from envbuild.launch.model import LaunchImage
from envbuild.launch.nodes_path import configuration_of, nodes_path, read_file
from envbuild.launch.registry_image import (
    before_start,
    is_alone,
    last_published,
    not_published,
    only_importer,
    registry_reference,
    requires_signature,
    sent_alone,
    why_no_reference,
    without_tag,
)
from envbuild.launch.ssh_server import locks_server
from envbuild.spec.enroot_rules import is_valid_variable
from envbuild.spec.project import is_valid_name
from envbuild.spec.target import load_target
from envbuild.spec.workspace import Workspace
from envbuild.verify.contents.metadata import ImageMetadata

REGISTRY = "docker://"


def find_image(name: str, workspace: Workspace, target: str = "") -> LaunchImage:
    """Return the image NAME, FILE or REF of a launch. `target`: of an image whose target is not recorded.

    Raises SpecError, InputError, VerifyError, ConflictError.
    """
    from envbuild.verify.contents.squashfs_path import find_squashfs_file, is_elsewhere

    if is_elsewhere(name):
        image = published_image(name, workspace, target)
    elif file := find_squashfs_file(name):
        image = squashfs_image(file, workspace, target)
    else:
        image = project_image(name, workspace, target)
    return image


def squashfs_image(file: Path, workspace: Workspace, target: str) -> LaunchImage:
    """Return the image of a squashfs file. The user named its path, who therefore knows that nodes read it."""
    found, server = read_file(file)
    image = of_metadata(found, file.name.removesuffix(".sqsh"), workspace, target, architecture_of(found))
    return replace(image, squashfs=str(file), ssh_server=server)


def published_image(name: str, workspace: Workspace, target: str) -> LaunchImage:
    """Return an image of a registry, by its small documents.

    Where the site requires a signature, the job names the digest that was compared with it: a tag can move, and the
    engine of a node may have another image under it.
    """
    from envbuild.publish.published_image import read_published

    if not name.startswith((REGISTRY, "oci:")):
        hint = f"envbuild export {shell_word(name)} --to squashfs -o image.sqsh; then envbuild launch image.sqsh"
        raise SpecError(f"{name[:200]} is not an image that nodes can pull", hint)
    arch = load_target(target, workspace.project).arch if target else ""  # the login node may have another one
    try:
        found = read_published(name, workspace, arch, to_use=True)
    except ConflictError:
        if not arch:
            raise
        found = read_published(name, workspace, to_use=True)  # an image of another architecture: the plan refuses it
    title = name.removeprefix(REGISTRY).partition("@")[0].rpartition("/")[2].partition(":")[0]
    lacks = (f"{name[:200]} is not an image that nodes can pull", "publish it to a registry, or name a squashfs file")
    reference = name if name.startswith(REGISTRY) else ""
    if reference and requires_signature(workspace):
        reference = f"{without_tag(reference)}@{found.digest}"
    metadata = found.metadata()
    image = of_metadata(metadata, title, workspace, target, found.config.config.architecture)
    alone = bool(found.squashfs and (not found.squashfs.image or name.endswith(found.squashfs.artifact)))
    return replace(
        image,
        reference=reference,
        docker=reference.removeprefix(REGISTRY),
        packs_alone=alone,
        lacks_path=lacks,
        warnings=only_importer(name) if alone else (),
        ssh_server=locks_server(metadata.lock),
    )


def of_metadata(found: ImageMetadata, name: str, workspace: Workspace, target: str, arch: str) -> LaunchImage:
    """Return an image as its own records describe it. Raises SpecError if they name no target and `target` is empty."""
    origin = found.origin
    own = origin.get("target")
    if not target and not (isinstance(own, str) and own):
        raise SpecError(
            f"{name} does not record the target that it is for",
            hint=f"type --target NAME, one of: {', '.join(workspace.project.targets())}",
        )
    order = origin.get("order")
    layers = tuple(str(item) for item in order) if isinstance(order, list) else ()
    env = {key: value for key, value in found.env.items() if is_valid_variable(key)}
    title = origin.get("image")
    return LaunchImage(
        name=title if isinstance(title, str) and is_valid_name(title) else name,
        target=target or str(own),
        arch=arch,
        env=env,
        versions=found.versions,
        layers=layers,
    )


def architecture_of(found: ImageMetadata) -> str:
    """Return the architecture that a squashfs file records; empty if it records none."""
    image = found.export.get("image")
    arch = image.get("architecture") if isinstance(image, Mapping) else ""
    return str(arch or (found.lock.arch if found.lock else ""))


def project_image(name: str, workspace: Workspace, target: str) -> LaunchImage:
    """Return an image of the project: as it was built, or as its spec and lock declare it. The matrix checks that
    its versions run on the driver of the site's hosts.

    Raises ConflictError, UnknownError, SpecError.
    """
    from envbuild.build.plan.image_config import image_config
    from envbuild.export.built_image import read_image_record
    from envbuild.lock.matrix_check import check_lock
    from envbuild.lock.model import lock_digest
    from envbuild.lock.resolve import resolve_as_locked, resolve_in
    from envbuild.lock.update import current_lock, draft_lock
    from envbuild.spec.image_spec import load_image_spec

    spec = load_image_spec(name, workspace.project)
    if target and target != spec.target:
        hint = f"leave out --target, or write a spec that extends {spec.name} with target: {target}"
        raise SpecError(f"--target {target}: {spec.name} is built for target '{spec.target}'", hint)
    try:
        resolution = resolve_as_locked(spec, workspace.project)
        lock = current_lock(resolution, workspace)
        check_lock(resolution, lock, workspace)
        locked = True
    except LockError:  # what is not built can be printed
        resolution = resolve_in(spec, workspace.project)
        lock, locked = draft_lock(resolution), False
    made = read_image_record(resolution, workspace) if locked else None
    file = Path(made.artifact) if made else None
    within, server = read_file(file) if file else (None, locks_server(lock) if locked else None)
    env = within.env if within else image_config(resolution, lock).env
    versions = {recipe.name: str(getattr(recipe, "version", "") or "") for recipe in resolution.recipes}
    versions = {key: value for key, value in versions.items() if value} | dict(resolution.chosen) | dict(lock.versions)
    path, lacks, other = nodes_path(spec.name, file, within, lock if locked else None, workspace)
    lacks_reference = why_no_reference(name, workspace, locked=locked)
    reference = "" if lacks_reference[0] else registry_reference(spec.name, spec.target, lock.epoch, workspace)
    known = last_published(reference, workspace) if reference else frozenset()
    moved = not_published(spec.name, reference, configuration_of(within), known) if within else ("", "")
    alone = is_alone(known)
    return LaunchImage(
        name=spec.name,
        target=spec.target,
        arch=resolution.target.arch,
        env=env,
        versions=versions,
        layers=tuple(resolution.order),
        typed=name,
        squashfs=path,
        lacks_path=lacks,
        reference=f"{REGISTRY}{reference}" if reference else "",
        lacks_reference=lacks_reference,
        docker=reference or f"{spec.name}:{lock_digest(lock)[7:19] if locked else 'latest'}",
        built=file is not None,
        before="" if file else before_start(spec.name, reference, locked=locked),
        configuration=configuration_of(within) if within else "",
        sha256=f"sha256:{made.sha256}" if made else "",
        diff_ids=made.layers if made else (),
        other=other,
        moved=moved,
        warnings=sent_alone(reference) if alone else (),
        ssh_server=server,
    )
