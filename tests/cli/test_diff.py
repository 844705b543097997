"""`envbuild diff` and `envbuild show FILE`: exit codes, images that are not built, and files read without a store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envbuild.core.errors import SpecError
from envbuild.verify.contents.squashfs_path import find_squashfs_file
from tests.support.command import envbuild
from tests.support.image_pair import RC
from tests.support.image_pair import pair as pair  # a fixture

pytestmark = pytest.mark.unit


@pytest.mark.slow_unit
def test_exit_codes(pair, tmp_path):
    one, other = pair
    assert envbuild("diff", one, one).returncode == 0
    done = envbuild("diff", one, other)
    assert (done.returncode, done.stderr) == (1, "") and done.stdout.splitlines()[2].startswith("different: ")
    data = json.loads(envbuild("diff", "--json", "--files", one, other).stdout)
    assert data["equal"] is False and len(data["paths"]) == 18
    damaged = tmp_path / "x.sqsh"
    damaged.write_bytes(Path(one).read_bytes()[:1000])
    for arguments, code in (
        (("diff", one, str(damaged)), 7),
        (("show", str(damaged)), 7),
        (("diff", one, str(tmp_path / "none.sqsh")), 2),
        (("diff", one, "no-such-image"), 2),
        (("diff", one), 2),
    ):
        done = envbuild(*arguments)
        assert (done.returncode, done.stdout) == (code, "") and "Traceback" not in done.stderr
    assert "0 equal, 1 different" in envbuild("diff", "--help").stdout


def test_an_image_that_is_not_built(pair, tmp_path):
    """A shipped spec with a lock; the store is empty."""
    environ = {"ENVBUILD_STORE": str(tmp_path)}
    same = envbuild("diff", "cpu-ucx", "cpu-ucx", **environ)
    assert (same.returncode, same.stderr) == (0, "")
    assert same.stdout.splitlines() == [
        "A  cpu-ucx: its lock; the image is not built",
        "B  cpu-ucx: its lock; the image is not built",
        "equal: the same components, packages and sources",
        "files",
        "  not compared: cpu-ucx is not built; run: envbuild make cpu-ucx",
    ]
    mixed = envbuild("diff", "cpu-ucx", pair[0], **environ)
    assert mixed.returncode == 1
    lines = mixed.stdout.splitlines()
    assert lines[0] == "A  cpu-ucx: its lock; the image is not built"
    assert lines[-1] == "  not compared: cpu-ucx is not built; run: envbuild make cpu-ucx"
    assert "  + gone 1" in lines


def test_one_file_of_an_image(pair):
    done = envbuild("show", pair[0], "--cat", "etc/rc")
    assert (done.returncode, done.stdout) == (0, RC)
    assert envbuild("show", pair[0], "--cat", "opt/link").stdout == "o" * 70  # links are followed
    for arguments in ((pair[0], "--cat", "etc"), (pair[0], "--cat", "none"), ("cpu-ucx", "--cat", "etc/rc")):
        done = envbuild("show", *arguments)
        assert (done.returncode, done.stdout) == (2, "") and "hint: " in done.stderr
    data = json.loads(envbuild("show", pair[0], "--json").stdout)
    assert data["origin"]["image"] == "small" and data["squashfs"]["inodes"] == 36


def test_files_are_read_where_no_store_can_be_written(pair):
    """As on a compute node: neither command makes anything."""
    for words, code in ((("show", pair[0]), 0), (("diff", *pair), 1), (("store", "du"), 0)):
        done = envbuild(*words, ENVBUILD_STORE="/proc/no/store")
        assert (done.returncode, done.stderr) == (code, ""), done.stderr


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("docker://app:1", "pull docker://app:1 -o image.sqsh"),
        ("oci:layout", "pull oci:layout -o image.sqsh"),
        ("docker-archive:a.tar", "export docker-archive:a.tar --to squashfs -o image.sqsh"),
        ("docker-daemon:app:1", "export docker-daemon:app:1 --to squashfs -o image.sqsh"),
    ],
)
def test_images_of_other_places_become_a_file_first(name, command):
    with pytest.raises(SpecError, match="not a squashfs file yet") as caught:
        find_squashfs_file(name)
    assert caught.value.hint == f"envbuild {command}; then name image.sqsh"
