"""The file of an image at the path of compute nodes, or in the registry: whether it is the image of the project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envbuild.core.store.store import Store
from envbuild.launch.nodes_path import compare_copy, nodes_path, read_file
from envbuild.launch.registry_image import is_alone, last_published, not_published
from envbuild.net.registry.client import RegistryAddress
from envbuild.publish.known_repositories import ALONE, read_repositories, record_repository
from envbuild.spec.workspace import Workspace
from tests.support.launching import shipped_workspace, write_squashfs

pytestmark = pytest.mark.unit
ONE, OTHER = (f"sha256:{number:064x}" for number in (1, 2))


def image(folder: Path, configuration: str) -> Path:
    folder.mkdir()
    export = {"image": {"architecture": "amd64", "config": configuration}}
    return write_squashfs(folder, {"etc/envbuild/export.json": json.dumps(export)})


def test_the_copy_of_another_image_is_reported(tmp_path: Path) -> None:
    """Such as one of before an edit of the spec, or another member's image of that name."""
    built, _ = read_file(image(tmp_path / "built", ONE))
    same, other = image(tmp_path / "same", ONE), image(tmp_path / "other", OTHER)
    assert compare_copy(same, built, None) == ""
    assert compare_copy(other, built, None) == f"{other} is another image than that of the project"
    assert compare_copy(tmp_path / "x.sqsh", built, None) == f"{tmp_path}/x.sqsh does not exist yet"
    assert compare_copy(tmp_path / "of nodes/x.sqsh", built, None) == ""  # this machine does not have the folder
    (tmp_path / "text.sqsh").write_text("no image")
    assert "cannot be read, because" in compare_copy(tmp_path / "text.sqsh", built, None)


def test_the_warning_has_the_command_that_copies_the_image(tmp_path: Path) -> None:
    folder = image(tmp_path / "images", OTHER).parent
    at = shipped_workspace(f"images: {folder}\n", tmp_path)
    built, _ = read_file(image(tmp_path / "built", ONE))
    path, lacks, other = nodes_path("net", tmp_path / "built/net.sqsh", built, None, at)
    assert (path, lacks) == (f"{folder}/net.sqsh", ("", ""))
    assert other == (
        f"{path} is another image than that of the project",
        f"envbuild export net --to squashfs -o {path}",
    )


@pytest.fixture
def at(tmp_path: Path) -> Workspace:
    at = shipped_workspace("registry: registry.example/team\n", tmp_path)
    Store.open(at.store.root)
    return at


def test_a_tag_that_still_names_an_earlier_image_is_reported(at: Workspace) -> None:
    reference, address = "registry.example/team/net:1", RegistryAddress("https://registry.example", "team/net")

    def difference(built: str) -> tuple[str, str]:
        return not_published("net", reference, built, last_published(reference, at))

    assert difference(ONE) == ("", "")  # another store may have sent it
    record_repository(at.store, RegistryAddress("https://registry.example", "team/other"), ["3" * 64], "1", OTHER)
    record_repository(at.store, address, [ONE.removeprefix("sha256:")], "2", OTHER)
    assert difference(ONE) == ("", "")
    for last in (ONE, OTHER):  # and back again
        record_repository(at.store, address, [last.removeprefix("sha256:")], "1", last)
    assert difference(OTHER) == ("", "")
    assert difference(ONE) == (
        f"{reference} was last published as another image than the one that is built here",
        "envbuild publish net --move",
    )
    assert not is_alone(last_published(reference, at))
    record_repository(at.store, address, [], "1", ALONE)
    assert difference(ONE) == ("", "") and is_alone(last_published(reference, at))
    assert read_repositories(at.store, address)["3" * 64] == "team/other"
