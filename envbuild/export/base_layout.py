"""A built image as base of another one: its layers as an OCI layout, which `lock` copies into the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from envbuild.export.built_image import load_built_image
from envbuild.oci.layout import write_layout
from envbuild.spec.workspace import Workspace
from envbuild.squashfs.pack.unpack import ensure_trees


@contextmanager
def open_base_layout(workspace: Workspace, name: str) -> Iterator[Path]:
    """Return the OCI layout of the image `name` as it was built; it is removed at the end of the context.

    Its layers are not compressed: compressed ones would have other digests with another release of a library, and
    locks name the digests. Raises LockError or EnvbuildError with the command that builds the image.
    """
    image, store = load_built_image(name, workspace), workspace.store
    ensure_trees(store, [layer.diff_id for layer in image.layers])
    with store.workdir() as work:
        out = work / name
        write_layout(image.layers, image.plan.config, out, store, epoch=image.plan.epoch, name=name, compression="none")
        yield out
