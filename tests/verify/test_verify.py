"""Verification of any squashfs file: only one with a lock inside can be compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import VerifyError
from envbuild.lock.lockfile import parse_lock
from envbuild.lock.model import lock_digest
from envbuild.verify import verify
from tests.support.foreign_images import workspace
from tests.support.image_pair import lock_text
from tests.support.packs import file, pack
from tests.support.squashfs_image import write_image

pytestmark = pytest.mark.unit

LOCK = lock_text("1.19", "2.0", "a" * 40)


def image(folder: Path, **texts: bytes) -> Path:
    """Write an image with these files in /etc/envbuild (`_` for a dot)."""
    layer = [file(f"etc/envbuild/{name.replace('_', '.')}".encode(), text) for name, text in texts.items()]
    return write_image([pack(folder / "one.pack", [file(b"a"), *layer])], folder / "x.sqsh", epoch=0).path


@pytest.mark.parametrize("texts", [{}, {"lock_yaml": LOCK}, {"resolution_json": b"{}"}])
def test_a_file_without_its_lock_is_not_compared(texts: dict[str, bytes], tmp_path: Path) -> None:
    path = image(tmp_path, **texts)
    with pytest.raises(VerifyError) as caught:
        verify.verify_file(path, workspace(tmp_path / "store"))
    assert (caught.value.where, caught.value.hint) == (str(path), f"envbuild show {path}")


def test_a_file_with_its_lock_is_audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = image(tmp_path, lock_yaml=LOCK, resolution_json=json.dumps({}).encode())
    lock = parse_lock(LOCK.decode(), path)
    seen: list[Any] = []
    monkeypatch.setattr(verify, "inspect_image", lambda run, own: {"schema": 1})
    monkeypatch.setattr(verify, "audit", lambda report, expected: seen.append((report, expected)) or [])
    found = verify.verify_file(path, workspace(tmp_path / "store"))
    assert (found.image, found.lock, found.results) == (lock.image, lock_digest(lock), ())
    assert found.artifact.startswith("sha256:") and len(seen) == 1
