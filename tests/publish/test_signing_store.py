"""The store that `publish --sign` reads: one in which no other user can replace what is signed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envbuild.core.errors import SignatureError
from envbuild.core.store.store import Store
from envbuild.publish.signature_artifacts import check_signing_store

pytestmark = pytest.mark.unit


def make_store(folder: Path, mode: int) -> Store:
    folder.mkdir()
    folder.chmod(mode)
    return Store.open(folder)


def test_nothing_is_signed_from_a_store_of_a_group(tmp_path: Path) -> None:
    """Packs of another member are in what this user builds, too. One who left the group may have written them."""
    shared = make_store(tmp_path / "shared", 0o3775)
    with pytest.raises(SignatureError, match="can be written by the group") as caught:
        check_signing_store(shared)
    assert caught.value.exit_code == 7 and "ENVBUILD_STORE" in caught.value.hint


@pytest.mark.parametrize("place", ["units/x.json", "packs/x", "blobs/sha256/x"])
def test_nothing_is_signed_from_a_store_that_was_a_groups(place: str, tmp_path: Path) -> None:
    """What a member put there is that member's still, who can write it."""
    if os.geteuid():
        pytest.skip("needs root, who may give a file to another user")
    store = make_store(tmp_path / "store", 0o755)
    (store.root / place).write_text("{}")
    check_signing_store(store)
    os.chown(store.root / place, 12345, 12345)
    with pytest.raises(SignatureError, match=f"{place} belongs to"):
        check_signing_store(store)


def test_a_store_of_one_user_is_signed_from(tmp_path: Path) -> None:
    """Also below a folder that a group may write."""
    tmp_path.chmod(0o2775)
    check_signing_store(make_store(tmp_path / "store", 0o755))
