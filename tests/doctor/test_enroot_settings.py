"""The folder of enroot's data, as the settings of sites write it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envbuild.doctor.facts.enroot_settings import enroot_folder
from envbuild.doctor.host import Host
from tests.support.node_files import Node

pytestmark = pytest.mark.unit

UID = os.getuid()


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("", "/home/me/.local/share/enroot"),
        ("ENROOT_DATA_PATH ${XDG_DATA_HOME}/enroot", "/home/me/.local/share/enroot"),
        ("#ENROOT_DATA_PATH /other", "/home/me/.local/share/enroot"),
        ("ENROOT_DATA_PATH\t/tmp/enroot-data/user-$(id -u)", f"/tmp/enroot-data/user-{UID}"),
        ("ENROOT_DATA_PATH=/local/$UID/data", f"/local/{UID}/data"),
        ('ENROOT_DATA_PATH   "/local/data-$(id -u)-${SLURMD_NODENAME:-login}"', f"/local/data-{UID}-login"),
        ("ENROOT_DATA_PATH ${SCRATCH:-$HOME/scratch}/enroot", "/home/me/scratch/enroot"),
        ("ENROOT_DATA_PATH ${JOB_TMP}/enroot", "/tmp/17/enroot"),
        ("ENROOT_DATA_PATH /local/$(hostname -s)/enroot", "/local/"),
        ("ENROOT_DATA_PATH $(mktemp -d)", "/"),
    ],
)
def test_the_folder_is_what_enroot_makes_of_the_setting(tmp_path: Path, line: str, path: str) -> None:
    node = Node(tmp_path)
    node.write("etc/enroot/enroot.conf", f"# settings\n{line}\nENROOT_TEMP_PATH /tmp\n")
    host = Host(str(node.root), environ={"HOME": "/home/me", "JOB_TMP": "/tmp/17"})
    assert enroot_folder(host) == path


def test_a_file_beside_the_settings_counts_where_they_are_silent(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write("etc/enroot/enroot.conf", "")
    node.write("etc/enroot/enroot.conf.d/20-site.conf", "ENROOT_DATA_PATH /second\n")
    node.write("etc/enroot/enroot.conf.d/10-site.conf", "ENROOT_DATA_PATH /first\n")
    host = Host(str(node.root), environ={"HOME": "/home/me"})
    assert enroot_folder(host) == "/first"
    node.write("etc/enroot/enroot.conf", "ENROOT_DATA_PATH /main\n")
    assert enroot_folder(host) == "/main"
