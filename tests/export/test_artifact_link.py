"""Links beside artifacts: the names that job scripts have."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.core.store.records import write_record
from envbuild.core.store.store import Store
from envbuild.export.artifact_link import free_name, is_project_link, link_by_name
from tests.support.foreign_images import workspace

pytestmark = pytest.mark.unit


def write_artifact(store: Store, name: str, **made: object) -> Path:
    path = store.root / "artifacts" / name
    path.touch()
    write_record(store.root / "images" / f"{name}.json", {"artifact": str(path), "layers": [], **made})
    return path


def test_a_link_is_replaced_only_if_it_is_another(store: Store) -> None:
    first, second = (write_artifact(store, f"app-{number}.sqsh") for number in (1, 2))
    link = first.with_name("app.sqsh")
    link_by_name(first, "app")
    before = link.lstat()
    link_by_name(first, "app")
    assert link.lstat().st_ino == before.st_ino
    link_by_name(second, "app")
    assert link.resolve() == second


def test_only_images_of_projects_have_their_link_for_themselves(store: Store) -> None:
    link_by_name(write_artifact(store, "app-1.sqsh", lock="sha256:1"), "app")
    link_by_name(write_artifact(store, "cuda-1.sqsh", origin="docker://nvidia/cuda"), "cuda")
    assert is_project_link(store, "app")
    assert not is_project_link(store, "cuda") and not is_project_link(store, "none")
    (store.root / "images" / "app-1.sqsh.json").write_text("[]")
    assert not is_project_link(store, "app")


def test_no_third_party_image_gets_the_name_of_an_image_of_a_project(tmp_path: Path) -> None:
    """Neither its own name nor the one with the suffix."""
    found = workspace(tmp_path / "store")
    assert free_name("app", found) == "app"
    for name in ("app", "app-image"):
        link_by_name(write_artifact(found.store, f"{name}-1.sqsh", lock="sha256:1"), name)
    assert free_name("app", found) == "app-image-image"
    assert free_name("app-1", found) == "app-1-image"  # a tag can be the digits in the name of a file
