"""The file of a built image, copied by `export`."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import VerifyError
from envbuild.export.built_image import BuiltImage, ImageRecord
from envbuild.export.options import ExportOptions
from envbuild.export.output_path import Output
from envbuild.export.progress import Progress
from envbuild.export.squashfs_output import write_squashfs_output
from tests.support.foreign_images import workspace

pytestmark = pytest.mark.unit


def test_a_digest_that_was_not_computed_is_named_so(tmp_path: Path) -> None:
    """The disk may have damaged the file since it was made."""
    at: Any = workspace(tmp_path / "store")
    (made := tmp_path / "x.sqsh").write_bytes(b"squashfs")
    sha256 = hashlib.sha256(b"squashfs").hexdigest()
    nothing: Any = None
    record = ImageRecord("x", str(made), sha256, "", "embedded", (), "", (), (), (), 1.0)
    image = BuiltImage(nothing, nothing, nothing, record, (), nothing)
    options = ExportOptions(output=Output.of(str(tmp_path / "out.sqsh")))

    def export(options: ExportOptions) -> str:
        return write_squashfs_output(image, options, Progress(at, "x", None, "writing")).text

    assert f"  sha256: {sha256} (recorded when it was made)\n" in export(options)
    assert f"  sha256: {sha256}\n" in export(replace(options, sha256=True))
    made.write_bytes(b"squashed")
    assert "(recorded when it was made)" in export(options)
    with pytest.raises(VerifyError, match="is damaged"):
        export(replace(options, sha256=True))
