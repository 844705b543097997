"""Destinations as users write them after --to, and the default tag."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.core.errors import SpecError
from envbuild.publish.destination import default_tag, parse_destination

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "name", "tag"),
    [
        ("registry.example/team/images", "registry.example/team/images", "made"),
        ("registry.example/team/images:h100", "registry.example/team/images", "h100"),
        ("localhost:5000/app", "localhost:5000/app", "made"),
        ("docker://ghcr.io/team/app:1", "ghcr.io/team/app", "1"),
        ("docker.io/app:1", "docker.io/library/app", "1"),
    ],
)
def test_a_registry(text: str, name: str, tag: str) -> None:
    found = parse_destination(text, "made")
    assert found.reference and found.folder is None
    assert (found.reference.name, found.reference.tag, found.tag) == (name, tag, tag)
    assert str(found) == f"{name}:{tag}"


@pytest.mark.parametrize(
    ("text", "folder", "tag"),
    [
        ("./images", "images", "made"),
        ("oci:images", "images", "made"),
        ("oci:/fs/images:h100", "/fs/images", "h100"),
        ("/fs/a:b/images", "/fs/a:b/images", "made"),
    ],
)
def test_a_folder(text: str, folder: str, tag: str) -> None:
    found = parse_destination(text, "made")
    assert (found.reference, found.folder, found.tag) == (None, Path(folder), tag)


@pytest.mark.parametrize(
    "text",
    [
        "images",
        "registry.example/App",
        "registry.example/app@sha256:" + "a" * 64,
        "registry.example/app:" + "a" * 129,
        "registry.example/app:-x",
        "registry.example/app:sha256-" + "a" * 64,
        "oci:",
        "./images:",
        "https://registry.example/app",
    ],
)
def test_anything_else_is_refused_with_a_form_to_write(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_destination(text, "made")
    assert caught.value.hint


@pytest.mark.parametrize("end", ["app:1", "app@sha256:" + "a" * 64])
def test_the_password_of_a_destination_is_not_repeated(end: str) -> None:
    with pytest.raises(SpecError, match="names a user") as caught:
        parse_destination(f"docker://robot:secret@registry.example:5000/{end}", "made")
    assert "secret" not in caught.value.message + caught.value.hint and "registry.example:5000" in caught.value.message


def test_the_default_tag_is_that_of_the_lock() -> None:
    assert default_tag("h100-ib", "h100-ucc", 1_700_000_000) == "h100-ib-h100-ucc-20231114"
