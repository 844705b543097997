"""Rows of the table of origins agree with what reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.lock.sources import candidate_places
from envbuild.net.origin_kinds import MIRROR_FOLDERS, ORIGINS, SOURCE_KINDS
from envbuild.net.public_homes import find_homes
from envbuild.net.site import Site, mirror_line

pytestmark = pytest.mark.unit


def test_the_kinds_that_a_recipe_may_name() -> None:
    assert {"github", "gitlab", "file", "mirror", "vendor"} <= set(SOURCE_KINDS)
    assert SOURCE_KINDS[-2:] == ("debian", "ubuntu")  # hints name the archives of distributions last
    assert set(SOURCE_KINDS) <= set(MIRROR_FOLDERS)  # else an air-gapped site could not have them


@pytest.mark.parametrize("kind", ORIGINS)
def test_a_row_is_complete(kind: str, tmp_path: Path) -> None:
    row, origin = ORIGINS[kind], f"{kind}:group/name@v1"
    assert mirror_line(origin, "/x").split(": [")[0].strip('"').rstrip(":").startswith(kind)
    assert not row.archive or (row.signed and row.folder == kind)
    if row.release:
        assert row.source and "{file}" in row.release
        places = candidate_places(Site(tmp_path), origin, "name-1.tar.gz")
        (home,) = find_homes(origin)
        assert places[0] == f"{home.address}/group/name/{row.release.format(tag='v1', file='name-1.tar.gz')}"
