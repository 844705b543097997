"""References of images: registry and repository, and invalid ones."""

from __future__ import annotations

import pytest

from envbuild.core.errors import SpecError
from envbuild.net.registry.reference import parse_reference

pytestmark = pytest.mark.unit
DIGEST = "a" * 64


@pytest.mark.parametrize(
    ("text", "registry", "repository", "wanted"),
    [
        ("nvcr.io/nvidia/pytorch:25.10-py3", "nvcr.io", "nvidia/pytorch", "25.10-py3"),
        ("docker.io/debian", "docker.io", "library/debian", "latest"),
        ("docker.io/nvidia/cuda:12", "docker.io", "nvidia/cuda", "12"),
        ("localhost:5000/a__b/c-d.e", "localhost:5000", "a__b/c-d.e", "latest"),
        ("[::1]:5000/a:1", "[::1]:5000", "a", "1"),
        (f"x.io/y:1@sha256:{DIGEST}", "x.io", "y", f"sha256:{DIGEST}"),
        (f"x.io/y@sha256:{DIGEST}", "x.io", "y", f"sha256:{DIGEST}"),
    ],
)
def test_references(text: str, registry: str, repository: str, wanted: str) -> None:
    found = parse_reference(text)
    assert (found.registry, found.repository, found.wanted) == (registry, repository, wanted)
    assert found.origin == f"oci:{registry}/{repository}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "debian",
        "x.io/",
        "x.io/A",
        "x.io/a:",
        "x.io/a/../b",
        "x.io/a:t/b",
        "x.io/a@sha256:1",
        "x.io/a b",
        "[::::]/a:1",
        "[1]:5000/a:1",
        "x.io/a\n",
    ],
)
def test_invalid_references_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="is not the reference of an image"):
        parse_reference(text)
