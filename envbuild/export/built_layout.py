"""A built image as an OCI layout for a short time: to be published, or to be the base of another image."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from envbuild.core.distributions import is_own_image
from envbuild.core.errors import EnvbuildError
from envbuild.export.built_image import BuiltImage, load_built_image, read_any_record
from envbuild.lock.base_image.own_images import OwnImages
from envbuild.lock.model import Lock
from envbuild.lock.resolve import resolve_image
from envbuild.oci.layout import Encode, write_layout
from envbuild.spec.image_spec import ImageSpec
from envbuild.spec.workspace import Workspace
from envbuild.squashfs.pack.unpack import ensure_trees


@contextmanager
def open_built_layout(
    image: BuiltImage,
    compression: str,
    workspace: Workspace,
    present: Callable[[str, int], bool] | None = None,
    encode: Encode | None = None,
) -> Iterator[Path]:
    """Yield a new OCI layout of a built image, which is removed at the end of the context. It lacks compressed layers
    (``sha256:…``, bytes) that are `present` where it is published. `encode`: as of `write_layout`.

    One that `export` left in the store is not used: in a store of a group another member may have written it.
    """
    store, name = workspace.store, image.plan.image
    workspace.reporter.start("oci", f"writing the layers of {name} (compression: {compression})")
    try:
        ensure_trees(store, [layer.diff_id for layer in image.layers])
        with store.workdir() as work:
            out, config, epoch = work / name, image.plan.config, image.plan.epoch
            write_layout(
                image.layers, config, out, store,
                epoch=epoch, name=name, compression=compression, present=present, encode=encode,
            )  # fmt: skip
            workspace.reporter.finish("oci")
            yield out
    finally:
        workspace.reporter.finish("oci")


def own_images(workspace: Workspace) -> OwnImages:
    """Return the images of the project as they were built, for locks of what is based on them."""
    return OwnImages(partial(open_base_layout, workspace), partial(built_layers, workspace))


def built_layers(workspace: Workspace, name: str) -> Sequence[str] | None:
    """Return the digests of the layers of the image `name` as it was built, bottom first; None if it is not built, or
    changed since."""
    try:
        _, made = read_any_record(resolve_image(name, workspace), workspace)
    except EnvbuildError:
        return None
    return made.layers if made else None


def report_newer_base(spec: ImageSpec, lock: Lock, workspace: Workspace) -> None:
    """Report an image of the project that was made again since the image of `spec`, which is based on it, was
    locked."""
    if is_own_image(spec.base) and own_images(workspace).is_other(spec.base, lock):
        workspace.reporter.warn(
            f"{spec.name} is on an earlier {spec.base}, which was made again since: envbuild lock {spec.name}"
        )


@contextmanager
def open_base_layout(workspace: Workspace, name: str) -> Iterator[Path]:
    """Yield the OCI layout of the image `name` as it was built, which `lock` copies into the store.

    Its layers are not compressed: compressed ones would have other digests with another release of a library, and
    locks name the digests. Raises LockError or EnvbuildError with the command that builds the image.
    """
    with open_built_layout(load_built_image(name, workspace), "none", workspace) as out:
        yield out
