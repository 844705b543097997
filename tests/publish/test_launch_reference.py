"""The reference of a launch, which must name the image that is built here before GPUs are checked in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.errors import EnvbuildError, InputError
from envbuild.launch.model import LaunchImage
from envbuild.launch.registry_image import check_tag
from tests.support.foreign_images import layers, workspace
from tests.support.local_registry import Server
from tests.support.published import built, publish

pytestmark = pytest.mark.registry


def test_a_tag_that_names_another_image_is_refused(tmp_path: Path, registry: Server) -> None:
    """A colleague, or another branch, may have moved it."""
    parts, artifacts, _ = built(tmp_path / "a", layers())
    publish(parts, artifacts, f"{registry.host}/app:1")
    at = workspace(tmp_path / "store")
    image = LaunchImage("app", "cpu", "amd64", {}, {}, (), reference=f"docker://{registry.host}/app:1")
    check_tag(replace(image, configuration=f"sha256:{parts.blobs[0].digest}"), at)
    with pytest.raises(EnvbuildError, match="another image than the one that is built here") as caught:
        check_tag(replace(image, configuration=f"sha256:{'0' * 64}"), at)
    assert caught.value.hint == "envbuild publish app"
    with pytest.raises(InputError):
        check_tag(replace(image, reference=f"docker://{registry.host}/app:2"), at)
