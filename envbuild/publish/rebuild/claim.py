"""Statements of a finished image about itself, in any place: its layers, its bytes, and the spec and lock it was built
from. A rebuild is compared with that."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envbuild.core.digest import reported_digest
from envbuild.core.errors import LockError, VerifyError
from envbuild.core.shell import shell_word
from envbuild.export.built_image import load_built_image
from envbuild.export.output_path import Output
from envbuild.oci.config import config_json
from envbuild.oci.sources.kinds import is_published
from envbuild.publish.published_image import PublishedLayer, read_published
from envbuild.publish.pull import pull_image
from envbuild.spec.workspace import Workspace
from envbuild.squashfs.read.superblock import refuse_excess
from envbuild.verify.contents.metadata import parse_object, read_image_texts
from envbuild.verify.contents.squashfs_path import find_squashfs_file

NO_LOCK = "{0} has no lock to build from: envbuild did not build this image, or it was published without its lock"


@dataclass(frozen=True, slots=True)
class Claim:
    """The statements of an image.

    `name`: as the user named it. `spec`, `lock`: their texts; empty for an image of the project, which has the files.
    `config`: digest (``sha256:…``) of its configuration. `layers`: bottom first. `squashfs`: sha256 (hex) of its file.
    `write`: returns the path of that file, which it may write into the folder that it is called with. `engine`: that
    built it; empty: unknown. `digest` (``sha256:…``): of what a reference names; empty: it is not published. `source`:
    from which its manifest and its layers can be read (`envbuild.oci.sources.open`); empty: it has none there.
    """

    name: str
    spec: str
    lock: str
    config: str
    layers: tuple[PublishedLayer, ...]
    squashfs: str
    write: Callable[[Path], Path] = field(repr=False)
    engine: str = ""
    digest: str = ""
    source: str = ""
    platform: str = ""


def read_claim(name: str, workspace: Workspace, platform: str = "") -> Claim:
    """Return the statements of a published image, of a squashfs file, or of an image of the project that is built.

    Raises SpecError, LockError, InputError, VerifyError, ConflictError, EnvbuildError for an image that is not built.
    """
    if is_published(name):
        return published_claim(name, workspace, platform)
    if file := find_squashfs_file(name):
        return file_claim(file, workspace)
    return project_claim(name, workspace)


def published_claim(name: str, workspace: Workspace, platform: str) -> Claim:
    """Return the statements of an image of a registry or a layout, of which no layer is fetched.

    Its lock names programs that a rebuild runs, so it must be signed where the site requires that."""
    found = read_published(name, workspace, platform, to_use=True)
    if not (found.spec and found.lock and found.squashfs):
        raise LockError(NO_LOCK.format(found.reference), hint=f"envbuild show {shell_word(name)}")

    squashfs = found.squashfs

    def write(folder: Path) -> Path:
        path = folder / "claimed.sqsh"
        if pull_image(name, Output(path), workspace, platform).data["sha256"] != squashfs.document.sha256:
            raise VerifyError(f"{found.reference} names another image than at the begin", hint="run the command again")
        return path

    return Claim(
        found.reference,
        found.spec,
        found.lock,
        found.config.identity,
        found.layers,
        found.squashfs.document.sha256,
        write,
        digest=found.digest,
        source=name if found.squashfs.image else "",
        platform=platform,
    )


def file_claim(path: Path, workspace: Workspace) -> Claim:
    """Return the statements inside a squashfs file, and the sha256 of its bytes. Raises VerifyError, LockError."""
    refuse_excess(path)
    texts = read_image_texts(path, "spec.yaml", "lock.yaml", "export.json")
    if not {"spec.yaml", "lock.yaml"} <= texts.keys():
        raise LockError(NO_LOCK.format(path), hint=f"envbuild show {shell_word(path)}")
    stated = parse_object(texts.get("export.json", "")).get("image")
    image: dict[str, Any] = stated if isinstance(stated, dict) else {}
    layers = image.get("layers")
    if not isinstance(layers, list) or not all(isinstance(item, str) for item in layers):
        raise VerifyError(
            "the file does not state its layers: an older envbuild wrote it",
            hint="rebuild the image by its name, or by the reference that it is published as",
            where=str(path),
        )
    return Claim(
        str(path),
        texts["spec.yaml"],
        texts["lock.yaml"],
        str(image.get("config", "")),
        tuple(PublishedLayer("", 0, diff_id, "") for diff_id in layers),
        reported_digest(path, workspace.reporter),
        lambda _: path,
    )


def project_claim(name: str, workspace: Workspace) -> Claim:
    """Return the record of an image of the project; the bytes of its file are read."""
    image = load_built_image(name, workspace)
    path, engine = Path(image.record.artifact), image.record.engine
    found = reported_digest(path, workspace.reporter)
    if found != image.record.sha256:
        raise VerifyError(
            f"corrupt file: expected sha256 {image.record.sha256}, got {found}",
            hint=f"envbuild make {shell_word(name)} writes it again",
            where=str(path),
        )
    config = config_json(image.layers, image.plan.config, image.plan.epoch)
    return Claim(
        name,
        "",
        "",
        f"sha256:{hashlib.sha256(config).hexdigest()}",
        tuple(PublishedLayer("", 0, layer.diff_id, layer.unit) for layer in image.layers),
        found,
        lambda _: path,
        engine,
    )
