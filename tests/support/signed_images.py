"""Published images with signatures: their parts, and the places that have them (fixtures: imported by conftest.py)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.signing.envelope import BUNDLE, encode_bundle
from envbuild.core.signing.key_file import Signer
from envbuild.core.signing.statement import Subject, encode_statement
from envbuild.publish.attached_documents import text_artifact
from envbuild.publish.image_parts import ImageParts
from envbuild.publish.remote_image import RemoteImage
from envbuild.publish.signature_artifacts import signature_artifacts
from envbuild.publish.signature_check import (
    SIGNED,
)
from envbuild.publish.squashfs_artifact import Artifact
from tests.support.local_registry import Server
from tests.support.published import publish, publish_folder
from tests.support.signing import new_key

Keys = tuple[Signer, Path]


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return new_key(tmp_path_factory.mktemp("team") / "team.key")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return new_key(tmp_path_factory.mktemp("other") / "other.key")


def signature(parts: ImageParts, signer: Signer, work: Path) -> Artifact:
    work.mkdir(parents=True)
    return signature_artifacts(signer, "app:1", parts.subject, work)[0]


def bundle(
    parts: ImageParts, signer: Signer, work: Path, *, about: str = "", kind: str = SIGNED, change: str = ""
) -> Artifact:
    """Return a signature that is listed for an image; about: the digest (hex) that it names instead; change: a digit
    of the signed digest becomes another one afterwards."""
    work.mkdir(parents=True)
    payload = encode_statement([Subject("app", about or parts.digest.removeprefix("sha256:"))], kind, {})
    value = json.loads(encode_bundle(payload, signer))
    if change:
        named = base64.b64decode(value["dsseEnvelope"]["payload"]).replace(parts.digest[7:].encode(), change.encode())
        value["dsseEnvelope"]["payload"] = base64.b64encode(named).decode()
    return text_artifact(BUNDLE, "bundle.json", json.dumps(value).encode(), parts.subject, work)


Place = Callable[[ImageParts, Sequence[Artifact]], str]


@pytest.fixture(params=["registry", "folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path, registry: Server) -> Place:
    """Return what publishes an image, and returns its name."""

    def to_registry(parts: ImageParts, artifacts: Sequence[Artifact]) -> str:
        publish(parts, artifacts, f"{registry.host}/app:1")
        return f"docker://{registry.host}/app:1"

    def to_folder(parts: ImageParts, artifacts: Sequence[Artifact]) -> str:
        publish_folder(parts, artifacts, tmp_path / "shared", "1")
        return f"oci:{tmp_path}/shared:1"

    return to_registry if request.param == "registry" else to_folder


@dataclass
class Repeated:
    """A published image with another list of artifacts."""

    image: RemoteImage
    entries: list[Any]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.image, name)

    def referrers(self, digest: str, kind: str) -> list[Any]:
        return self.entries
