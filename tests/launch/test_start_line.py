"""The line that starts a finished file: a path that compute nodes read, with MPI where the image contains it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from envbuild.launch import start_line
from envbuild.launch.start_line import start_lines
from envbuild.net.slurm_site import Slurm
from tests.support.launching import site, write_squashfs

pytestmark = pytest.mark.unit

AGAIN = "envbuild export net --to squashfs"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return squashfs(tmp_path, ["ucx", "mpi4py"])


def squashfs(folder: Path, order: list[str]) -> Path:
    """Return a file with the record of an image of these layers."""
    return write_squashfs(folder, {"etc/envbuild/resolution.json": json.dumps({"image": "net", "order": order})})


def test_a_folder_of_this_machine_is_not_named(file: Path) -> None:
    text = start_lines(file, site(), AGAIN, chosen=False)
    assert str(file) not in text
    assert text == (
        "  start:    write images: /a/shared/folder, which compute nodes read, into site.yaml, then: "
        "envbuild export net --to squashfs -o /a/shared/folder/net.sqsh"
    )


def test_the_folder_of_the_site_is_named(file: Path) -> None:
    assert start_lines(file, site(images="/fs/my images"), AGAIN, chosen=False) == (
        "  copy:     envbuild export net --to squashfs -o '/fs/my images/net.sqsh'\n"
        "  start:    srun --container-image='/fs/my images/net.sqsh' --pty bash"
    )
    within = start_lines(file, site(images=str(file.parent)), AGAIN, chosen=False)
    assert within == f"  start:    srun --container-image={file} --pty bash"


def test_a_path_that_the_user_chose_is_named(file: Path) -> None:
    assert start_lines(file, site(), AGAIN, chosen=True, width=7) == (
        f"  start:  srun --container-image={file} --pty bash"
    )


def test_a_file_system_of_the_network_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_line, "is_shared", lambda path: path == file)
    assert start_lines(file, site(), AGAIN, chosen=False).startswith(f"  start:    srun --container-image={file}")


@pytest.mark.parametrize("layer", ["openmpi", "hpcx"])
def test_an_image_with_mpi_has_its_line(layer: str, tmp_path: Path) -> None:
    path = squashfs(tmp_path, ["ucx", layer])
    second = start_lines(path, site(), AGAIN, chosen=True).splitlines()[1]
    assert second == f"  MPI:      srun --mpi=pmix -n 2 --container-image={path} CMD"


@pytest.mark.parametrize(
    ("plugins", "option"),
    [(None, "--mpi=pmix"), (("pmix", "pmix_v4"), "--mpi=pmix"), (("pmix_v3", "pmix_v4"), "--mpi=pmix_v4"), ((), "")],
)
def test_the_line_of_mpi_names_a_plugin_of_the_site(
    plugins: tuple[str, ...] | None, option: str, tmp_path: Path
) -> None:
    path = squashfs(tmp_path, ["openmpi"])
    text = start_lines(path, site(slurm=Slurm(pmix=plugins)), AGAIN, chosen=True)
    assert re.findall(r"--mpi=\S+", text) == ([option] if option else [])


def test_a_file_without_records_has_one_line(tmp_path: Path) -> None:
    (tmp_path / "net.sqsh").write_bytes(b"hsqs")
    assert len(start_lines(tmp_path / "net.sqsh", site(), AGAIN, chosen=True).splitlines()) == 1
    assert len(start_lines(tmp_path / "none.sqsh", site(), AGAIN, chosen=True).splitlines()) == 1
