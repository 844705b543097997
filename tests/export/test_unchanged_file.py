"""The file of a `make --no-verify`: a later `make` or `publish` verifies it, and does not write it again."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from envbuild.build.engines.base import BuildResult
from envbuild.export import project_image
from envbuild.export.built_image import ImageRecord
from envbuild.export.project_image import SquashfsFile
from envbuild.lock.model import lock_digest
from envbuild.make import write_image
from tests.support.foreign_images import workspace
from tests.support.ready_image import ready_image
from tests.support.stored_inputs import lock
from tests.support.stored_layers import files, layer

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("change", ["", "bytes", "layers", "lock", "missing"])
def test_only_a_file_that_differs_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    at: Any = workspace(tmp_path / "store")
    made = layer(at.store, "base", files(a="1"))
    again = SquashfsFile(tmp_path / "again", "", 0)
    monkeypatch.setattr(project_image, "write_artifact", lambda *_: again)
    file = tmp_path / "image.sqsh"
    file.write_bytes(b"squashfs")
    sha256, layers = hashlib.sha256(b"squashfs").hexdigest(), ("sha256:0",) if change == "layers" else (made.diff_id,)
    digest = "sha256:2" if change == "lock" else lock_digest(lock())
    record = ImageRecord("x", str(file), sha256, digest, "embedded", ("repaired",), "", layers, (), (), 1.0)
    if change == "bytes":
        file.write_bytes(b"squashed")
    if change == "missing":
        file.unlink()
    result = BuildResult("embedded", (made,), (), ("base",))
    built, found = write_image(ready_image(None, None, lock()), result, at, record)
    assert built.layers == (made,)
    stamp = (8, file.stat().st_mtime_ns) if file.exists() else None
    assert found == (again if change else SquashfsFile(file, sha256, 8, ("repaired",), stamp))
