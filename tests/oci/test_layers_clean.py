"""The clean list, and the pure parts of the layer scan."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from envbuild.core.errors import BuildError
from envbuild.oci.layers.clean import clean
from envbuild.oci.layers.layer import upper_members
from envbuild.oci.layers.scan import make_canonical, scan, scan_canonical
from envbuild.oci.tar.member import Kind

pytestmark = pytest.mark.unit
EPOCH = 1_600_000_000


def put(root: Path, *names: str, text: str = "x") -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def names(upper: Path, *lowers: Path, keep: tuple[str, ...] = ()) -> list[str]:
    return [os.fsdecode(member.path) for member, _ in upper_members(upper, lowers, epoch=EPOCH, keep=keep)]


def test_leftovers_are_removed_and_the_rest_is_preserved(tmp_path: Path) -> None:
    gone = (
        "etc/passwd-",
        "etc/ssh/ssh_host_rsa_key",
        "var/log/dpkg.log",
        "var/log/apt/history.log",
        "var/lib/apt/lists/x_Packages",
        "var/cache/ldconfig/aux-cache",
        "var/cache/debconf/config.dat-old",
        "root/.cache/pip/x",
        "run/pid",
        "tmp/.hidden",
        "var/lib/dpkg/status-old",
    )
    kept = (
        "etc/passwd",
        "etc/ssh/sshd_config",
        "var/lib/dpkg/status",
        "var/cache/debconf/config.dat",
        "root/.bashrc",
        "opt/tmp/x",
    )
    (tmp_path / "var/lib/apt/lists/partial").mkdir(parents=True)
    put(tmp_path, *gone, *kept, "etc/machine-id", "var/lib/dbus/machine-id")
    clean(tmp_path)
    assert [name for name in gone if (tmp_path / name).exists()] == []
    assert [name for name in kept if not (tmp_path / name).exists()] == []
    assert (tmp_path / "var/lib/apt/lists/partial").is_dir()
    assert (tmp_path / "etc/machine-id").read_text() == ""
    assert str((tmp_path / "var/lib/dbus/machine-id").readlink()) == "/etc/machine-id"


def test_cleaning_does_not_follow_links_outside(tmp_path: Path) -> None:
    outside, upper = tmp_path / "outside", tmp_path / "upper"
    put(outside, "log/precious.log")
    (upper / "etc").mkdir(parents=True)
    (upper / "var").symlink_to(outside)
    (upper / "etc/machine-id").symlink_to(outside / "log/precious.log")
    clean(upper)
    assert (outside / "log/precious.log").read_text() == "x"


def test_members_equal_to_the_lower_layer_are_dropped(tmp_path: Path) -> None:
    lower, upper = tmp_path / "lower", tmp_path / "upper"
    for root in (lower, upper):
        put(root, "a/same", "a/b/same", "c/touched")
        for folder, _, files in os.walk(root):
            for name in [*files, "."]:
                os.utime(Path(folder) / name, (5, 5))
    os.utime(upper / "c/touched", (7, 7))
    os.utime(upper / "c", (5, 5))
    assert names(upper, lower) == ["c/touched"]
    put(upper, "a/same", text="y")
    os.utime(upper / "a/same", (5, 5))
    assert names(upper, lower) == ["a/same", "c/touched"], "equal size and time do not make equal content"


def test_times_are_clamped_to_whole_seconds(tmp_path: Path) -> None:
    put(tmp_path, "new", "old")
    os.utime(tmp_path / "old", ns=(0, 1_500_000_000_999_999_999))
    assert [member.mtime for member, _ in upper_members(tmp_path, [], epoch=EPOCH)] == [EPOCH, 1_500_000_000]


def test_members_are_in_byte_order_and_the_first_name_holds_the_data(tmp_path: Path) -> None:
    put(tmp_path, "a-b", "a/x")
    os.link(tmp_path / "a/x", tmp_path / "a.c")
    found = [(member.path, member.kind, member.link) for member, _ in upper_members(tmp_path, [], epoch=EPOCH)]
    assert found == [
        (b"a", Kind.DIR, b""),
        (b"a-b", Kind.FILE, b""),
        (b"a.c", Kind.FILE, b""),
        (b"a/x", Kind.HARDLINK, b"a.c"),
    ]


def test_keep_limits_the_layer_and_adds_missing_parents_only(tmp_path: Path) -> None:
    lower, upper = tmp_path / "lower", tmp_path / "upper"
    (lower / "opt").mkdir(parents=True)
    put(upper, "opt/x/lib/f", "opt/y", "etc/z", "new/deep/here")
    assert names(upper, lower, keep=("/opt/x",)) == ["opt/x", "opt/x/lib", "opt/x/lib/f"]
    assert names(upper, lower, keep=("/new/deep",)) == ["new", "new/deep", "new/deep/here"]
    assert names(upper, lower, keep=("/opt/missing",)) == []


def test_a_cleaned_tree_reads_as_the_same_layer(tmp_path: Path) -> None:
    lower, upper = tmp_path / "lower", tmp_path / "upper"
    put(lower, "d/one", "d/two")
    os.utime(lower / "d", (5, 5))
    put(upper, "d/three", "other/x")
    os.utime(upper / "d", (5, 5))  # equal to the lower one: not a member, though it holds one
    before = list(upper_members(upper, [lower], epoch=EPOCH))
    found = scan(upper, [lower], epoch=EPOCH)
    make_canonical(found)
    assert found.implied == [b"d"]
    from envbuild.oci.layers.scan import read_members

    assert list(read_members(scan_canonical(upper, found.implied))) == before
    make_canonical(scan(upper, [lower], epoch=EPOCH))
    assert list(upper_members(upper, [lower], epoch=EPOCH)) == before


def test_a_name_of_a_whiteout_is_refused(tmp_path: Path) -> None:
    lower, upper = tmp_path / "lower", tmp_path / "upper"
    put(lower, "data")
    put(upper, ".wh.data", "opt/.wh..wh..opq", "opt/fine.wh.", "var/out/.wh.left")
    (upper / "opt/.wh.folder").mkdir()
    with pytest.raises(BuildError) as caught:
        names(upper, lower, keep=("/.wh.data", "/opt"))
    assert [item.where for item in caught.value.findings] == ["/.wh.data", "/opt/.wh..wh..opq", "/opt/.wh.folder"]
    assert names(upper, lower, keep=("/opt/fine.wh.",)) == ["opt", "opt/fine.wh."]


def test_access_control_lists_are_not_part_of_a_tree(tmp_path: Path) -> None:
    """A default one decides the modes of what a later unit makes in the folder, where the tree was built and nowhere
    else."""
    put(tmp_path, "upper/opt/d/file")
    entries = [(tag, 7, 0xFFFFFFFF) for tag in (1, 4, 0x20)]  # of the owner, the group and others: acl(5)
    value = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(tmp_path / "upper/opt/d", "system.posix_acl_default", value)
    except OSError:
        pytest.skip("no POSIX ACLs on the file system of the temporary folder")
    make_canonical(scan(tmp_path / "upper", [], epoch=EPOCH))
    assert not os.listxattr(tmp_path / "upper/opt/d")
    before = os.umask(0o022)
    (tmp_path / "upper/opt/d/new").touch()
    os.umask(before)
    assert (tmp_path / "upper/opt/d/new").stat().st_mode & 0o777 == 0o644
