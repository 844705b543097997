"""Paths as users write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.core.errors import SpecError
from envbuild.core.paths import expand_home
from envbuild.lock.base_image.local_image import source_of
from envbuild.net.site import store_folder
from envbuild.net.site_file import read_site
from envbuild.oci.sources.open import split_path
from envbuild.publish.destination import parse_destination
from envbuild.verify.contents.squashfs_path import find_squashfs_file

pytestmark = pytest.mark.unit

NOBODY = "~no-such-user/x"


def test_a_home_is_expanded_at_the_begin_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert expand_home("~/x") == Path("/home/me/x")
    assert expand_home("./~/x") == Path("~/x")
    assert expand_home("a/~") == Path("a/~")


def site(tmp_path: Path, line: str) -> None:
    (tmp_path / "site.yaml").write_text(f"schema: 1\n{line}\n")
    read_site(tmp_path / "site.yaml")


@pytest.mark.parametrize(
    "use",
    [
        lambda folder: split_path(NOBODY),
        lambda folder: source_of(f"docker-archive:{NOBODY}", folder),
        lambda folder: store_folder(NOBODY),
        lambda folder: site(folder, f"store: {NOBODY}"),
        lambda folder: site(folder, f"mirrors: {{debian: [{NOBODY}]}}"),
        lambda folder: parse_destination(f"oci:{NOBODY}", "x"),
        lambda folder: find_squashfs_file(f"{NOBODY}.sqsh"),
    ],
)
def test_a_user_who_does_not_exist_is_a_mistake_of_the_caller(
    use: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ENVBUILD_STORE", raising=False)
    with pytest.raises(SpecError) as caught:
        use(tmp_path)  # type: ignore[operator]
    assert "~no-such-user" in caught.value.message and caught.value.hint
