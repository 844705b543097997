"""Export: layers of the store → the squashfs file of an image."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from envbuild.console import Talk, amount
from envbuild.engines.base import Built
from envbuild.lock.lockfile import Lock, lock_digest
from envbuild.plan.units import Plan
from envbuild.store import Store


@dataclass(frozen=True, slots=True)
class Artifact:
    """A finished file: `messages` are the repairs made for enroot, one line each."""

    path: Path
    sha256: str
    size: int
    messages: tuple[str, ...] = ()


def squashfs(plan: Plan, built: Built, lock: Lock, store: Store, talk: Talk) -> Artifact:
    """Write ``artifacts/NAME-<lock digest 12>.sqsh`` from the packs of the layers."""
    from envbuild.oci.layer import PackFormat, pack_layer
    from envbuild.squashfs import export_squashfs

    name = f"{plan.image}-{lock_digest(lock)[7:19]}.sqsh"
    out = store.root / "artifacts" / name
    talk.start("squashfs", f"squashfs {name}")
    packs = [pack_layer(store, layer, PackFormat()) for layer in built.layers]
    written = export_squashfs(packs, plan.config, out, epoch=plan.epoch)
    with out.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    talk.finish("squashfs", f"squashfs {name}: {amount(written.size)}, {written.inodes} inodes")
    return Artifact(out, sha256, written.size, tuple(written.messages))


def point(artifact: Artifact, plan: Plan) -> None:
    """Let ``NAME.sqsh`` beside the artifact be a link to it: done last, so it never names a file that failed verify."""
    link = artifact.path.with_name(f"{plan.image}.sqsh")
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(artifact.path.name)
    temporary.replace(link)
