"""Paths that compute nodes read: on a file system of the network, or in the site's folder of images."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.core.errors import SpecError
from envbuild.launch.shared_path import file_system, is_shared
from tests.support.launching import launch_shipped

pytestmark = pytest.mark.unit

MOUNTS = """\
21 1 254:0 / / rw,relatime - ext4 /dev/vda1 rw
30 21 0:40 / /home rw,nosuid shared:3 - nfs4 server:/home rw,vers=4.2
31 30 0:41 / /home/me/local\\040disk rw - xfs /dev/nvme0n1 rw
32 21 0:42 / /fs rw - lustre mgs@tcp:/fs rw
33 21 0:43 / /fs/images rw - tmpfs tmpfs rw
34 21 0:44 / /fsother rw master:1 - fuse.glusterfs x rw
35 21 0:45 / /mnt rw - fuse.x a\x0c36 21 0:46 / /srv rw - nfs4 x rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind", "shared"),
    [
        ("/srv/x.sqsh", "ext4", False),
        ("/home/me/x.sqsh", "nfs4", True),
        ("/home/me/local disk/x", "xfs", False),
        ("/fs/x", "lustre", True),
        ("/fs/images/x", "tmpfs", False),
        ("/fsother/x", "fuse.glusterfs", True),
    ],
)
def test_file_systems_of_the_network(path: str, kind: str, shared: bool, tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert file_system(Path(path), mounts) == kind
    assert is_shared(Path(path), mounts) is shared


def test_the_root_of_this_machine_has_a_file_system() -> None:
    assert file_system(Path("/"))
    assert file_system(Path("/"), Path("/nonexistent")) == ""


def test_a_start_line_never_names_a_folder_of_this_machine_alone(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        launch_shipped("cpu-ucx", "srun", 'slurm: {pyxis: "0.20.0", pmix: [pmix]}\n', tmp_path, ["hostname"])
    assert str(caught.value) == (
        "no folder is known from which compute nodes read cpu-ucx\n"
        "hint: write images: /a/shared/folder into site.yaml; then: "
        "envbuild export cpu-ucx --to squashfs -o /a/shared/folder/cpu-ucx.sqsh"
    )


def test_the_folder_of_the_site_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    text = f'images: {folder}\nslurm: {{pyxis: "0.20.0", pmix: [pmix]}}\n'
    launch = launch_shipped("cpu-ucx", "srun", text, tmp_path, ["hostname"])
    assert f"--container-image={folder}/cpu-ucx.sqsh" in launch.written.text
    assert any(f"{folder}/cpu-ucx.sqsh does not exist yet" in line for line in launch.plan.warnings)
