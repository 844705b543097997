"""The import of what Docker built: a step of a hostile package cannot lead it out of the tree."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from envbuild.build.engines.docker.import_units import write_upper
from envbuild.build.engines.docker.stages import Role
from envbuild.core.errors import EngineError
from tests.support.local_registry import file, folder, symlink, tar

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="files get the owners of the layers, which needs root"),
]
SEED = [folder("tmp", 0o1777), file("tmp/of-the-seed", b"1"), folder("run"), folder("etc")]


def archive(place: Path, *layers: bytes) -> tuple[Path, dict[str, Any]]:
    """Write a Docker archive of one image with such layers; return it and the entry of the image."""
    config = {"history": [{"created_by": f"RUN {number}"} for number in range(len(layers))]}
    names = [f"{number}.tar" for number in range(len(layers))]
    contents = {"config.json": json.dumps(config).encode(), **dict(zip(names, layers, strict=True))}
    with tarfile.open(place, "w") as saved:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            saved.addfile(info, io.BytesIO(content))
    return place, {"Config": "config.json", "Layers": names}


def written(tmp_path: Path, *layers: bytes) -> Path:
    """Return the tree that is written of a base with these layers, the seed first."""
    path, entry = archive(tmp_path / "saved.tar", *layers)
    tree = tmp_path / "layer/tree"
    tree.mkdir(parents=True)
    roles = [Role.SEED, *[Role.STEP] * (len(layers) - 1)]
    with tarfile.open(path) as saved:
        write_upper(saved, entry, {"name": "base", "roles": roles}, tree, [])
    return tree


def test_files_of_steps_in_folders_of_the_system_are_not_of_the_unit(tmp_path: Path) -> None:
    tree = written(tmp_path, tar(*SEED), tar(file("tmp/of-a-step", b"2"), file("etc/name", b"3")))
    assert sorted(str(path.relative_to(tree)) for path in tree.rglob("*")) == [
        "etc",
        "etc/name",
        "run",
        "tmp",
        "tmp/of-the-seed",
    ]


@pytest.mark.parametrize("later", [(), (tar(file("tmp/below", b"4")),)])
def test_a_link_in_the_place_of_such_a_folder_removes_nothing_behind_it(tmp_path: Path, later: tuple[bytes]) -> None:
    victim = tmp_path / "victim"
    (victim / "folder").mkdir(parents=True)
    (victim / "file").write_text("of the machine")
    os.utime(victim, (1, 1))
    with pytest.raises(EngineError, match="a step of base replaced or removed /tmp"):
        written(tmp_path, tar(*SEED), tar(symlink("tmp", str(victim))), *later)
    assert sorted(path.name for path in victim.iterdir()) == ["file", "folder"] and victim.stat().st_mtime == 1


def test_a_removed_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="a step of base replaced or removed /tmp"):
        written(tmp_path, tar(*SEED), tar(file(".wh.tmp", b"")))
