"""Archives as `docker save` writes them (Docker image specification 1.2), made by hand."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path


def write_saved_image(
    path: Path, tars: Sequence[bytes], stored: Sequence[bytes] = (), *, arch: str = "amd64", mode: str = "w"
) -> Path:
    """Write an archive of one image of the layers `tars`, called app:1.

    stored: the same layers as the archive has them (compressed, damaged); mode: of `tarfile.open`
    """
    diff_ids = [f"sha256:{hashlib.sha256(content).hexdigest()}" for content in tars]
    config = {"architecture": arch, "os": "linux", "config": {"Env": ["A=1"]}, "rootfs": {"diff_ids": diff_ids}}
    names = [f"{number}/layer.tar" for number in range(len(tars))]
    listed = [{"Config": "config.json", "RepoTags": ["app:1"], "Layers": names}]
    documents = [("config.json", json.dumps(config).encode()), ("manifest.json", json.dumps(listed).encode())]
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in [documents[0], *zip(names, stored or tars, strict=True), documents[1]]:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path
