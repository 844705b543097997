"""The tarballs of commits: made again from the lock alone, taken finished from a mirror, unpacked."""

from __future__ import annotations

import io
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.build.engines.safe_extract import extract_tar
from envbuild.core.bombs import UnpackedFiles
from envbuild.core.errors import InputError
from tests.support.git_server import Repo, Served
from tests.support.git_site import MARKS, Desk, git_source
from tests.support.git_site import demo as demo  # a fixture
from tests.support.git_site import desk as desk  # a fixture
from tests.support.git_site import nested as nested  # a fixture
from tests.support.git_site import server as server  # a fixture

pytestmark = MARKS


@pytest.mark.slow_unit
def test_remade_from_the_lock_alone(nested: Repo, desk: Desk, tmp_path: Path) -> None:
    found = desk.lock(git_source(nested, "*"))
    other = Desk(tmp_path / "other", github=tmp_path / "work")
    other.obtain(found)
    assert other.store.blob(found.sha256).read_bytes() == desk.store.blob(found.sha256).read_bytes()
    shutil.rmtree(tmp_path / "work")
    other.obtain(found)  # it exists
    with pytest.raises(InputError, match="is not available"):
        Desk(tmp_path / "third", github=tmp_path / "work").obtain(found)


def test_lock_that_was_edited(nested: Repo, desk: Desk, tmp_path: Path) -> None:
    found = replace(desk.lock(git_source(nested, "*")), submodules={})
    with pytest.raises(InputError, match="but the lock has"):
        Desk(tmp_path / "other", github=tmp_path / "work").obtain(found)


def test_finished_tarball_of_a_mirror(nested: Repo, desk: Desk, tmp_path: Path, server: Served) -> None:
    wanted = git_source(nested, "*")
    found = desk.lock(wanted)
    shutil.copy(desk.store.blob(found.sha256), tmp_path / "served" / found.file)
    server.plain = True
    shutil.rmtree(tmp_path / "work")
    for number, place in enumerate((tmp_path / "served", server.url)):
        other = Desk(tmp_path / f"s{number}", github=place)
        other.obtain(found)
        assert other.store.has_blob(found.sha256)
        fresh = Desk(tmp_path / f"t{number}", github=place)
        assert fresh.lock(wanted, found) == found  # it shows that no submodule is missing


def test_tarball_with_other_content(demo: Repo, desk: Desk, tmp_path: Path) -> None:
    found = desk.lock(git_source(demo))
    (tmp_path / "work" / found.file).write_bytes(b"other")
    other = Desk(tmp_path / "other", github=tmp_path / "work")
    other.obtain(found)  # made again
    assert other.store.has_blob(found.sha256)
    shutil.rmtree(demo.path)
    with pytest.raises(InputError, match=f"{found.file}: digest mismatch") as caught:
        Desk(tmp_path / "third", github=tmp_path / "work").obtain(found)
    assert "contains no git repository" in caught.value.message


def test_tarball_unpacks(nested: Repo, desk: Desk, tmp_path: Path) -> None:
    found = desk.lock(git_source(nested, "*"))
    with tarfile.open(fileobj=io.BytesIO(desk.store.blob(found.sha256).read_bytes())) as tar:
        extract_tar(tar, tmp_path / "out", UnpackedFiles(1))
    (top,) = (tmp_path / "out").iterdir()
    assert top.name == found.file.removesuffix(".tar")
    assert (top / "libs/one/one.c").read_bytes() == b"1"
