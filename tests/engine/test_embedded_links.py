"""Links of an image never lead out of its box: where something is mounted, made or written, for a run and for a build.

A chain of links leads to a folder of this machine; nothing there may change."""

from __future__ import annotations

import os
import pwd
import shutil
import struct
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from envbuild.build.engines.base import BuildOptions, BuildResult
from envbuild.build.engines.embedded import mount_squashfs
from envbuild.build.engines.embedded.engine import Embedded
from envbuild.build.plan.units import Unit
from envbuild.core.console import SilentReporter
from envbuild.core.errors import InputError, SpecError, VerifyError
from envbuild.core.link_walk import LINKS
from envbuild.core.store.store import Store
from envbuild.core.userns.namespaces import SetupError
from envbuild.core.userns.removal import remove_tree
from envbuild.oci.layers.layer import stored_members
from envbuild.squashfs.read.superblock import read_superblock
from tests.support import tiny_root as kit
from tests.support.captured_run import run_captured
from tests.support.engine_fixtures import open_working_store
from tests.support.link_chains import TOO_MANY, canary, chain, plant, unchanged
from tests.support.packs import file
from tests.support.squashfs_tree import build as build_image

pytestmark = pytest.mark.engine


@pytest.fixture
def outside() -> Iterator[Path]:
    """Yield a folder of this machine in which nothing may change; what is next to it does not count.

    Its name leads to no mount of a box, as one below /tmp would.
    """
    home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    if not os.access(home, os.W_OK):
        pytest.skip(f"the home folder {home} is not writable")
    folder = Path(tempfile.mkdtemp(prefix=".envbuild-test-", dir=home))
    yield canary(folder / "outside")
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def built(scratch: Path) -> Iterator[tuple[Store, Path]]:
    """Yield a store, and the tree of the tiny root in it."""
    path = Path(tempfile.mkdtemp(dir=scratch))
    path.chmod(0o755)
    store = open_working_store(path)
    yield store, store.layer_tree(kit.build(store).layers[0].diff_id)
    remove_tree(path)


def run(built: tuple[Store, Path], links: dict[str, str], command: str, tmp_path: Path, **rest: object) -> str:
    """Return the output of a command in the tiny root with `links` over it."""
    store, tree = built
    (tmp_path / "over").mkdir()
    plant(tmp_path / "over", links)
    argv = ["/bin/sh", "-c", command]
    code, output = run_captured([tree, tmp_path / "over"], argv, env={}, store=store, **rest)  # type: ignore[arg-type]
    assert code == 0, output
    return output.decode()


@pytest.mark.parametrize("place", ["etc/hosts", "etc/resolv.conf"])
@pytest.mark.parametrize("length", [1, LINKS - 1, LINKS, 60, 200])
def test_files_that_are_mounted(
    built: tuple[Store, Path], outside: Path, place: str, length: int, tmp_path: Path
) -> None:
    if place == "etc/resolv.conf" and not Path("/etc/resolv.conf").is_file():
        pytest.skip("this machine has no /etc/resolv.conf")
    links = {**chain(length, str(outside)), place: "/z0/made/it"}
    with unchanged(outside):
        if length >= LINKS:  # the place is one more link
            with pytest.raises(InputError, match=f"/{place} of the image cannot be used: {TOO_MANY}") as caught:
                run(built, links, "true", tmp_path, network=True)
            assert caught.value.hint and caught.value.exit_code == 10
        else:
            text = run(built, links, f"cat {outside}/made/it", tmp_path, network=True)
            assert text == Path("/", place).read_text()
    assert list((built[0].tmp).iterdir()) == []


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("/usr", "Is a directory"),
        ("/dev/pts", "Is a directory"),
        ("/", "it is the root of the image"),
        ("/sys/hosts", "Read-only file system"),
        ("x" * 300, "File name too long"),
        ("/proc/self/exe", "it leads through a link of /proc to an open file or a namespace"),
        ("/proc/self/root/hosts", "it leads through a link of /proc to an open file or a namespace"),
    ],
)
def test_a_file_that_cannot_be_mounted_has_its_cause(
    built: tuple[Store, Path], target: str, why: str, tmp_path: Path
) -> None:
    """Neither the machine nor the store is at fault."""
    with pytest.raises(InputError) as caught:
        run(built, {"etc/hosts": target}, "true", tmp_path)
    assert caught.value.message == f"/etc/hosts of the image cannot be used: {why}"
    assert caught.value.hint.startswith("use another image")


@pytest.mark.parametrize("place", ["proc", "dev", "run", "tmp", "sys"])
@pytest.mark.parametrize("length", [1, 60])
def test_folders_that_are_mounted(
    built: tuple[Store, Path], outside: Path, place: str, length: int, tmp_path: Path
) -> None:
    links = {**chain(length, f"{outside}/new"), place: "z0"}
    with unchanged(outside):
        if length == 1:
            assert run(built, links, f"test -d {outside}/new && echo inside", tmp_path) == "inside\n"
        else:
            with pytest.raises(InputError, match=f"/{place} of the image cannot be used: {TOO_MANY}"):
                run(built, links, "true", tmp_path)


@pytest.mark.parametrize("target", ["tmp/new", "run/new", "/tmp/a/b", "../../run/user/1"])
@pytest.mark.parametrize("place", ["proc", "dev"])
def test_proc_and_dev_may_lead_into_a_temporary_folder(
    built: tuple[Store, Path], place: str, target: str, tmp_path: Path
) -> None:
    """What is mounted at /tmp and /run does not hide them."""
    look = "read self < /proc/self/stat && echo hello > /dev/null && echo well"
    assert run(built, {place: target}, look, tmp_path) == "well\n"


@pytest.mark.parametrize(
    ("links", "hidden"),
    [
        ({"tmp": "run/x"}, "/tmp"),
        ({"tmp": "proc/x"}, "/tmp"),
        ({"run": "dev"}, "/run"),
        ({"proc": "x", "dev": "x"}, "/proc"),
        ({"tmp": "x", "run": "x"}, "/tmp"),
        ({"sys": "dev"}, "/dev"),
    ],
)
def test_folders_that_hide_each_other_are_refused(
    built: tuple[Store, Path], links: dict[str, str], hidden: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=f"{hidden} of the image cannot be used: something else is mounted"):
        run(built, links, "true", tmp_path)


@pytest.mark.parametrize("place", ["run", "dev", "proc"])
def test_a_folder_that_is_the_root_is_refused(built: tuple[Store, Path], place: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"/{place} of the image cannot be used: it is the root of the image"):
        run(built, {place: "/"}, "true", tmp_path)


@pytest.mark.parametrize("links", [{"proc": "/etc"}, {"run": "/proc/1/root"}], ids=str)
def test_folders_that_lead_into_proc_are_refused(
    built: tuple[Store, Path], links: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="of the image cannot be used"):
        run(built, links, "true", tmp_path)


def test_targets_of_binds(built: tuple[Store, Path], outside: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("mine\n")
    binds = [(str(own), "/z0/made/file")]
    with unchanged(outside):
        text = run(built, chain(LINKS, str(outside)), f"cat {outside}/made/file", tmp_path, binds=binds)
        assert text == "mine\n"
        shutil.rmtree(tmp_path / "over")
        with pytest.raises(SpecError, match=f"--bind {own}:/z0/made/file: {TOO_MANY}"):
            run(built, chain(LINKS + 1, str(outside)), "true", tmp_path, binds=binds)
        shutil.rmtree(tmp_path / "over")
        with pytest.raises(SpecError, match=f"--bind {tmp_path}:/: it is the root of the image"):
            run(built, {}, "true", tmp_path, binds=[(str(tmp_path), "/")])


def test_a_squashfs_file(built: tuple[Store, Path], outside: Path, tmp_path: Path) -> None:
    """A third-party image with 60 links does not make files of its choice on this machine."""
    if shutil.which("mksquashfs") is None:
        pytest.skip("mksquashfs is not installed")
    if os.geteuid() != 0:
        pytest.skip("mksquashfs reads the owners of a layer for root alone")
    tree = tmp_path / "tree"
    subprocess.run(["cp", "-a", str(built[1]), str(tree)], check=True)
    plant(tree, {**chain(60, str(outside)), "etc/hosts": "/z0/sub/made-by-image"})
    image = tmp_path / "evil.sqsh"
    subprocess.run(["mksquashfs", str(tree), str(image), "-quiet", "-no-progress"], check=True, capture_output=True)
    with unchanged(outside), pytest.raises(InputError, match=f"/etc/hosts of the image cannot be used: {TOO_MANY}"):
        run_captured(image, ["/usr/bin/true"], env={}, store=built[0])


def build(store: Store, links: dict[str, str], *units: Unit) -> BuildResult:
    """Build a base of a package with `links`, which is unpacked before the tiny root, and `units` on it."""
    name = "base-files_1_all.deb"
    parents = {str(parent) for link in links for parent in Path(link).parents if str(parent) != "."}
    entries = [(kit.entry(f"./{folder}", tarfile.DIRTYPE), b"") for folder in sorted(parents)]
    entries += [(kit.entry(f"./{link}", tarfile.SYMTYPE, link=target), b"") for link, target in links.items()]
    control = "Package: base-files\nVersion: 1\nArchitecture: all\nDescription: tests\n"
    base = kit.base(store)
    blobs = (kit.add(store, name, kit.make_deb(control, entries)), *base.inputs[0].blobs)
    base = replace(base, inputs=(replace(base.inputs[0], blobs=blobs),), seed=(name, *base.seed))
    plan = replace(kit.plan(store), units=(base, *units))
    return Embedded(packs=()).build(plan, store, SilentReporter(), BuildOptions())


@pytest.mark.parametrize("place", ["var/tmp", "usr/sbin", "usr/sbin/policy-rc.d", "etc/hosts"])
@pytest.mark.parametrize("length", [LINKS, 60])
def test_a_build_on_a_chain_is_refused(store: Store, outside: Path, place: str, length: int) -> None:
    """The place is one more link."""
    links = {**chain(length, str(outside)), place: "/z0/policy" if "policy" in place else "/z0"}
    with unchanged(outside), pytest.raises(InputError, match=TOO_MANY) as caught:
        build(store, links)
    assert caught.value.hint
    assert list((store.tmp).iterdir()) == []


@pytest.mark.parametrize("room", [False, True], ids=["nowhere", "inside"])
def test_a_dangling_policy_is_not_written_outside(store: Store, outside: Path, room: bool) -> None:
    """A link of the name of policy-rc.d leads to a file that is not there: it is made in the box, and is gone after."""
    links = {"usr/sbin/policy-rc.d": f"{outside}/evil", **({f"{outside}/x".lstrip("/"): "y"} if room else {})}
    look = f"if [ -x {outside}/evil ]; then echo yes; else echo no; fi > /opt/found"
    with unchanged(outside):
        made = build(store, links, kit.unit("quiet", "true"), kit.unit("found", look))
    assert list(stored_members(store, made.layers[1].diff_id)) == []
    assert (store.layer_tree(made.layers[2].diff_id) / "opt/found").read_text() == ("yes\n" if room else "no\n")
    assert [member.path for member, _ in stored_members(store, made.layers[2].diff_id)] == [b"opt", b"opt/found"]


def test_places_behind_40_links_work(store: Store, outside: Path) -> None:
    """The temporary folder and the folder of services may be links, as of a merged /usr."""
    links = {**chain(LINKS - 1, "/data/sub"), "var/tmp": "/z0", "usr/sbin": "/z0"}
    look = "echo x > /var/tmp/x; test -e /data/sub/x && echo yes > /opt/yes"
    with unchanged(outside):
        made = build(store, links, kit.unit("look", look))
    assert [member.path for member, _ in stored_members(store, made.layers[-1].diff_id)] == [b"opt", b"opt/yes"]


@pytest.mark.usefixtures("no_loop_devices")
def test_names_that_unsquashfs_would_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in which a link and a folder have one name is not given to unsquashfs (CVE-2021-41072)."""
    if shutil.which("mksquashfs") is None:
        pytest.skip("mksquashfs is not installed")
    source = tmp_path / "source"
    (source / "n1").mkdir(parents=True)
    (source / "n1/file").write_text("x")
    (source / "n0").symlink_to("/nowhere")
    image = tmp_path / "image.sqsh"
    options = ["-quiet", "-no-progress", "-noI"]
    subprocess.run(["mksquashfs", str(source), str(image), *options], check=True, capture_output=True)
    content = image.read_bytes()
    if content.count(b"n1") == 0:
        pytest.skip("this mksquashfs compresses directories with -noI")
    image.write_bytes(content.replace(b"n1", b"n0"))
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs/unsquashfs").write_text(f"#!/bin/sh\ntouch {tmp_path}/called\n")
    (tmp_path / "programs/unsquashfs").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    with pytest.raises(VerifyError, match="is damaged"):
        mount_squashfs.mount_image(image, tmp_path)
    assert not (tmp_path / "called").exists()


def outside_attributes(image: Path) -> None:
    """Let the first set of attributes be outside of their table: unsquashfs reads outside of its memory."""
    with image.open("r+b") as opened:
        table = read_superblock(opened, "").xattr_table
        (block,) = struct.unpack("<Q", os.pread(opened.fileno(), 8, table + 16))
        os.pwrite(opened.fileno(), b"\xff\xff", block + 2)  # the offset in a piece of the table


def long_name(image: Path) -> None:
    """Let a name have 1001 bytes: squashfuse 0.1.105 writes it over its stack."""
    data = image.read_bytes()
    at = data.rindex(b"aaaa-0")
    image.write_bytes(data[: at - 2] + struct.pack("<H", 1000) + data[at:])


@pytest.mark.usefixtures("no_loop_devices")
@pytest.mark.parametrize("damage", [outside_attributes, long_name])
@pytest.mark.parametrize("program", ["squashfuse", "unsquashfs"])
def test_a_program_outside_of_the_box_gets_no_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, damage: Callable[[Path], None]
) -> None:
    many = [file(b"aaaa-%d" % number, b"1") for number in range(400)]
    image = build_image(tmp_path, [*many, file(b"b", b"1", xattrs={b"user.k": b"v"})], codec="none")
    damage(image)
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / program).write_text(f"#!/bin/sh\ntouch {tmp_path}/called\n")
    (tmp_path / "programs" / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    monkeypatch.setattr(mount_squashfs, "FUSE", "/dev/null")
    with pytest.raises(VerifyError, match="is damaged"):
        mount_squashfs.mount_image(image, tmp_path)
    assert not (tmp_path / "called").exists()


@pytest.mark.usefixtures("no_loop_devices")
@pytest.mark.parametrize("program", ["squashfuse", "unsquashfs"])
def test_a_file_that_is_exchanged_after_its_check_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """Another user may give its name to another file meanwhile."""
    image = build_image(tmp_path, [file(b"a", b"1")])
    sound = image.read_bytes()
    (tmp_path / "bad").write_bytes(b"bad")
    (tmp_path / "programs").mkdir()
    # of the arguments the one that is the image; the folder of unsquashfs is the one before
    (tmp_path / "programs" / program).write_text('#!/bin/sh\nexec /bin/cp "$6" "$5/copy"\n')
    (tmp_path / "programs" / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))

    def exchange(check: Callable[[Path], None], content: Path) -> None:
        check(content)
        (tmp_path / "bad").rename(image)
        if program == "squashfuse":
            assert content.read_bytes() == sound

    for name in ("check_content", "check_unpacked"):
        monkeypatch.setattr(mount_squashfs, name, partial(exchange, getattr(mount_squashfs, name)))
    monkeypatch.setattr(mount_squashfs, "FUSE", "/dev/null" if program == "squashfuse" else "/nonexistent")
    with pytest.raises(SetupError):
        mount_squashfs.mount_image(image, tmp_path)
    assert not (tmp_path / "image/copy").exists() and image.read_bytes() == b"bad"
