"""The reference of a launch, which must name the image that is built here before GPUs are checked in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.errors import EnvbuildError, InputError
from envbuild.launch.gpu_tiers import check_image
from envbuild.launch.model import LaunchImage
from envbuild.launch.registry_image import check_tag
from envbuild.publish.image_parts import ImageParts
from tests.support.foreign_images import layers, workspace
from tests.support.local_registry import Server
from tests.support.published import built, publish

pytestmark = pytest.mark.registry


def test_a_tag_that_names_another_image_is_refused(tmp_path: Path, registry: Server) -> None:
    """A colleague, or another branch, may have moved it."""
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    publish(parts, artifacts, f"{registry.host}/app:1")
    at = workspace(tmp_path / "store")
    image = LaunchImage("app", "cpu", "amd64", {}, {}, (), reference=f"docker://{registry.host}/app:1")
    right = replace(image, configuration=f"sha256:{parts.blobs[0].digest}", docker=f"{registry.host}/app:1")
    assert check_tag(right, at) == parts.digest
    assert check_image(right, at).docker == f"{registry.host}/app@{parts.digest}"
    assert check_image(replace(right, other=("of the record alone", "")), at).docker.endswith(parts.digest)
    with pytest.raises(EnvbuildError, match="another image than the one that is built here") as caught:
        check_tag(replace(image, configuration=f"sha256:{'0' * 64}"), at)
    assert caught.value.hint == "envbuild publish app"
    with pytest.raises(InputError):
        check_tag(replace(image, reference=f"docker://{registry.host}/app:2"), at)
    alone = ImageParts.of_artifact(artifacts[0], {"os": "linux", "architecture": "amd64"})
    publish(alone, artifacts, f"{registry.host}/app:alone")
    image = replace(image, reference=f"docker://{registry.host}/app:alone", sha256=f"sha256:{sha256}")
    assert check_tag(image, at) == artifacts[0].digest
    with pytest.raises(EnvbuildError, match="another image than the one that is built here"):
        check_tag(replace(image, sha256=f"sha256:{'0' * 64}"), at)


def test_a_file_of_compute_nodes_that_is_another_one_is_refused(tmp_path: Path) -> None:
    image = LaunchImage("app", "cpu", "amd64", {}, {}, (), squashfs="/fs/app.sqsh", other=("another", "copy it"))
    with pytest.raises(EnvbuildError, match="another"):
        check_image(image, workspace(tmp_path / "store"))
