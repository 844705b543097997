"""Links that enroot follows on the node do not lead out of the image."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from envbuild.core.errors import InputError
from envbuild.export import host_links
from envbuild.export.host_links import inside, relative_links
from envbuild.squashfs.read.tree import SquashTree
from tests.support import foreign_images as kit
from tests.support.foreign_images import made, workspace
from tests.support.local_registry import Layout, tar
from tests.support.local_registry import file as tar_file
from tests.support.local_registry import folder as tar_folder
from tests.support.local_registry import symlink as tar_symlink
from tests.support.packs import file, folder, symlink, tree

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("target", "depth", "relative"),
    [
        (b"/usr/etc", 0, b"usr/etc"),
        (b"/usr/etc", 2, b"../../usr/etc"),
        (b"//usr/./etc/", 1, b"../usr/etc"),
        (b"/", 0, b"."),
        (b"/", 1, b".."),
        (b"/../../etc", 1, b"../etc"),
        (b"../usr/etc", 0, b"usr/etc"),
        (b"../../../x", 1, b"../x"),
        (b"..", 0, b"."),
        (b"../usr", 1, b"../usr"),
        (b"usr/../etc/", 0, b"usr/../etc/"),
        (b".", 0, b"."),
    ],
)
def test_a_link_leads_where_it_led_and_remains_in_its_root(target: bytes, depth: int, relative: bytes) -> None:
    assert inside(target, depth) == relative


def replaced(*layer: object, folder: Path) -> dict[str, str]:
    found = relative_links(tree(folder, *layer))
    assert len(found.messages) == len(found.extra)
    return {member.path.decode(): member.link.decode() for member, _ in found.extra}


def test_links_on_the_ways_of_enroot_alone_are_replaced(tmp_path: Path) -> None:
    layer = [
        symlink(b"etc", b"/usr/etc"),
        symlink(b"usr/etc", b"../../system"),  # one step more than there are folders
        symlink(b"system", b"/real/etc"),
        folder(b"real/etc"),
        symlink(b"real/etc/passwd", b"/store/passwd"),
        symlink(b"real/etc/localtime", b"/usr/share/zoneinfo/UTC"),  # enroot replaces the link itself
        file(b"store/passwd"),
        symlink(b"home", b"/var/home"),
        symlink(b"lib64", b"usr/lib64"),
        symlink(b"var/run", b"/run"),  # enroot's own program mounts there, inside of the image
        symlink(b"usr/share", b"/share"),
        symlink(b"loop", b"/loop"),
    ]
    assert replaced(*layer, folder=tmp_path) == {
        "etc": "usr/etc",
        "home": "var/home",
        "loop": "loop",
        "real/etc/passwd": "../../store/passwd",
        "system": "real/etc",
        "usr/etc": "../system",
        "usr/share": "../share",
    }


def test_links_that_a_hook_copies_or_writes_through_are_replaced(tmp_path: Path) -> None:
    """10-shadow.sh copies /etc/skel with cp -L, 10-aptfix.sh and 10-localtime.sh write files of these names."""
    layer = [
        symlink(b"etc/apt/apt.conf.d/enroot", b"/home/a/.bashrc"),
        symlink(b"etc/skel/.stolen", b"/home/a/.ssh"),
        symlink(b"etc/skel/deep/er", b"../../../../../root"),
        symlink(b"etc/skel/fine", b"deep"),
        symlink(b"etc/localtime", b"/home/a"),
        symlink(b"usr/share/zoneinfo", b"/opt/zones"),
        symlink(b"opt/zones/Etc/UTC", b"/home/a/notes"),
        symlink(b"opt/other", b"/home/a"),
        symlink(b"etc/skel/direct", b"../../opt/dir"),  # cp -L enters it
        symlink(b"opt/dir/.again", b"/home/a/again"),
        symlink(b"opt/dir/circle", b"."),
    ]
    assert replaced(*layer, folder=tmp_path) == {
        "opt/dir/.again": "../../home/a/again",
        "etc/apt/apt.conf.d/enroot": "../../../home/a/.bashrc",
        "etc/skel/.stolen": "../../home/a/.ssh",
        "etc/skel/deep/er": "../../../root",
        "etc/localtime": "../home/a",
        "usr/share/zoneinfo": "../../opt/zones",
        "opt/zones/Etc/UTC": "../../../home/a/notes",
    }


def test_very_many_links_that_a_hook_copies_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_links, "MOST_LINKS", 3)
    deep = b"/".join([b"d"] * 1500)
    layer = [symlink(b"etc/skel/" + deep + b"/%d" % number, b"x") for number in range(3)]
    assert replaced(*layer, folder=tmp_path) == {}
    (tmp_path / "b").mkdir()
    with pytest.raises(InputError, match="/etc/skel has more than 3 links"):
        replaced(*layer, symlink(b"etc/skel/x", b"y"), folder=tmp_path / "b")


def test_the_ways_of_all_links_together_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each link of 2,500 leads through 40 others, each of them through many folders."""
    layer = [symlink(b"etc/skel/%d" % number, b"/a/b/c/d/e/f") for number in range(50)]
    assert len(replaced(*layer, folder=tmp_path)) == 50
    monkeypatch.setattr(host_links, "MOST_STEPS", 100)
    (tmp_path / "b").mkdir()
    with pytest.raises(InputError, match="more than 100 folders and links"):
        replaced(*layer, folder=tmp_path / "b")


@pytest.mark.parametrize(
    ("target", "now"),
    [
        (b"/usr/share/zoneinfo/../../../home/a", "../usr/share/zoneinfo/../../../home/a"),
        (b"../../../home", "../home"),
        (b"/usr/share/zoneinfo/Etc/UTC", ""),
        (b"../usr/share/zoneinfo/UTC", ""),
    ],
)
def test_a_zone_is_below_the_folder_of_zones(target: bytes, now: str, tmp_path: Path) -> None:
    expected = {"etc/localtime": now} if now else {}
    assert replaced(symlink(b"etc/localtime", target), folder=tmp_path) == expected


def test_an_image_without_such_links_is_not_changed(tmp_path: Path) -> None:
    layer = [folder(b"etc"), symlink(b"etc/localtime", b"/usr/share/zoneinfo/UTC"), symlink(b"lib", b"usr/lib")]
    layer += [
        symlink(b"usr/share/zoneinfo/localtime", b"/etc/localtime"),
        symlink(b"usr/share/zoneinfo/UTC", b"Etc/UTC"),
    ]
    assert replaced(*layer, folder=tmp_path) == {}


@pytest.mark.parametrize("cache", [True, False])
def test_an_image_whose_etc_is_an_absolute_link_starts(cache: bool, tmp_path: Path) -> None:
    """enroot's hooks write ROOT/etc/passwd and ROOT/etc/localtime from outside."""
    layout = Layout(tmp_path / "layout")
    base = tar(
        *[tar_folder(name) for name in ("usr", "usr/bin", "usr/etc")],
        *[tar_symlink("bin", "/usr/bin"), tar_symlink("etc", "/usr/etc")],
        *[tar_file("usr/bin/sh", b"#!", 0o755), tar_file("usr/etc/passwd", b"root:x:0:0::/root:/bin/sh\n")],
    )
    layout.add(kit.image(layout, [base]))
    done = made(f"oci:{layout.path}", workspace(tmp_path / "store"), tmp_path / "a.sqsh", cache=cache)
    with SquashTree(done.artifact.path) as found:
        links = {name: found.lookup(name, follow=False).target for name in (b"etc", b"bin")}
        assert links == {b"etc": b"usr/etc", b"bin": b"usr/bin"}
        assert found.read(b"usr/etc/rc") and found.read(b"etc/rc") and found.read(b"etc/passwd")
        repairs = json.loads(found.read(b"etc/envbuild/export.json") or b"")["repairs"]
    assert [line for line in repairs if line.startswith("the link /etc -> /usr/etc is now usr/etc")]
    assert os.fsdecode(links[b"etc"]) in " ".join(done.artifact.messages)


def test_links_on_the_way_of_a_volume_are_replaced(tmp_path: Path) -> None:
    """/etc/fstab names it as ${ENROOT_ROOTFS}/srv/l/user: with the link of the image it was a folder of the node."""
    layer = [folder(b"srv"), symlink(b"srv/l", b"/var/deep"), symlink(b"var/deep", b"/opt"), symlink(b"srv/m", b"/opt")]
    found = relative_links(tree(tmp_path, *layer), ["/srv/x/../l/user/.ssh", "/none/at/all"])
    links = {member.path.decode(): member.link.decode() for member, _ in found.extra}
    assert links == {"srv/l": "../var/deep", "var/deep": "../opt"}
