"""enroot itself: it creates and starts what envbuild exported, and its own import of that image is the same tree."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from envbuild.squashfs.codec import DEFAULTS
from envbuild.squashfs.pack.format import PackFormat
from tests.support import foreign_images as kit
from tests.support import tiny_root
from tests.support.foreign_images import made, workspace
from tests.support.local_registry import Layout, Server, file, folder, hardlink, serve, special, symlink, tar
from tests.support.squashfs_snapshot import differences, unpack

pytestmark = pytest.mark.clients

NOBODY_ID = 65534  # has an entry in passwd, which enroot wants of who starts a container
FORMS = [("zstd", 131072), ("zstd", 1 << 20), ("gzip", 131072), ("lz4", 131072), ("lz4", 1 << 20), ("none", 131072)]
CONFIG: dict[str, Any] = {
    "Env": ["PATH=/opt/tool/bin:/usr/bin:/bin", "WORDS=a b  c", "EMPTY=", 'JSON={"a": "$b"}', "EQUALS=a=b", "END=x  "],
    "Entrypoint": ["env", "GIVEN=it's", "sh", "-c", 'echo "entrypoint: $GIVEN"; exec "$@"', "zero"],
    "Cmd": ["sh", "-c", 'echo "command: $0" "$PWD"', "$HOME `id`"],
    "WorkingDir": "/data/work dir",
    "Labels": {"org.example.b": "two words", "org.example.a": "it's $HOME `id`"},
    "Volumes": {"/scratch": {}, "/data": {}},
    "User": "alice",
}
# Settings that an image may have and /etc/environment and /etc/fstab cannot express.
STRANGE: dict[str, Any] = {
    "Env": [
        "PATH=/opt/tool/bin:/usr/bin:/bin",
        "LINES2=one\nA=two",
        "OTHER=/x:${HOME}",
        "QUOTED='q'",
        "HOME=/new/home",
    ],
    "Cmd": ["true"],
    "WorkingDir": '/w$HOME `id` "q"',
    "Volumes": {"/a b": {}, "/missing": {}, "/tmp/x": {}, "/sys/x": {}},
    "Labels": {"line": "break\ntouch /tmp/evil"},
}
REPAIRED = {"etc/envbuild", "etc/envbuild/export.json", "etc/profile.d/zz-envbuild-path.sh", "scratch"}
WRITTEN = ("etc/rc", "etc/rc.local", "etc/environment", "etc/fstab")
NOW = 1_750_000_000  # after everything in the image, before any test


def layers(folders: bool = True) -> list[bytes]:
    """Return a shell and its libraries; files as they should not be; deletions. `folders`: with an /etc/profile.d."""
    places = dict(tiny_root.host_files())
    above = sorted({str(parent) for place in places for parent in Path(place).parents} - {"."})
    profile = b"PATH=/usr/bin:/bin\nexport PATH\nfor file in /etc/profile.d/*.sh; do . $file; done\n"
    if not folders:
        profile = b"PATH=/usr/bin:/bin\nexport PATH\n"
    names = ("tmp", "var", "var/lib", "etc", "dev", "proc", "sys", "root", "opt", "opt/tool", "opt/tool/bin")
    base = [
        folder("."),
        *[folder(name) for name in [*above, *names, *["etc/profile.d"] * folders]],
        *[file(place, path.read_bytes(), 0o755) for place, path in places.items()],
        *[symlink("bin", "usr/bin"), file("etc/profile", profile), file("dev/file", b"1")],
        *[file(f"etc/{name}") for name in ("hosts", "hostname", "resolv.conf")],
        *[file("etc/passwd", b"root:x:0:0::/root:/bin/sh\n"), file("etc/group", b"root:x:0:\n")],
        *[file("etc/environment", b"LOST=1\n"), file("opt/tool/bin/tool", b"#!/bin/sh\necho tool\n", 0o755)],
    ]
    modes = (0o000, 0o011, 0o055, 0o100, 0o200, 0o444, 0o644, 0o1644, 0o2755, 0o4755, 0o7777)
    odd = [
        folder("odd"),
        *[file(f"odd/file{mode:o}", b"#!/bin/sh\n", mode) for mode in modes],
        *[folder(f"odd/folder{mode:o}", mode) for mode in (0o000, 0o077, 0o444, 0o555, 0o1777, 0o2775)],
        *[file("odd/folder0/file", b"1"), file("odd/owned", b"2", uid=1000), file("odd/zeros", bytes(1_000_000))],
        *[file("odd/hard1", b"3" * 5000), hardlink("odd/hard2", "odd/hard1"), special("odd/fifo", tarfile.FIFOTYPE)],
        *[symlink("odd/dangling", "/no where"), file("odd/with blank", b"4"), file("odd/über\n", kit.noise(300_000))],
        *[folder("gone"), file("gone/a", b"5"), file("gone/b", b"6"), folder("opaque"), file("opaque/old", b"7")],
        *[file("replaced", b"8"), folder("once"), file("once/file", b"9"), folder("implied", 0o700)],
    ]
    top = [
        *[file("gone/.wh.a"), folder("opaque"), file("opaque/.wh..wh..opq"), file("opaque/new", b"10")],
        *[folder("replaced"), file("replaced/file", b"11"), file("once", b"12"), file("implied/file", b"13")],
    ]
    return [tar(*base), tar(*odd), tar(*top)]


class Enroot:
    """enroot with folders of its own. `user`: run it as the user `nobody`."""

    def __init__(self, place: Path, user: bool = False) -> None:
        self.place, self.user = place, user
        own = {name: place / name.lower() for name in ("RUNTIME", "CACHE", "DATA", "TEMP", "CONFIG")}
        for path in own.values():
            path.mkdir(parents=True)
            if user:
                os.chown(path, NOBODY_ID, NOBODY_ID)
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ENROOT_")},
            **{f"ENROOT_{name}_PATH": str(path) for name, path in own.items()},
            **{"ENROOT_ALLOW_HTTP": "y", "HOME": str(own["CONFIG"])},
            **{"NVIDIA_VISIBLE_DEVICES": "void", "MELLANOX_VISIBLE_DEVICES": "none"},
        }

    def run(self, *words: str | Path) -> str:
        who = f"setpriv --reuid {NOBODY_ID} --regid {NOBODY_ID} --clear-groups".split() if self.user else []
        command = [*who, "enroot", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, env=self.env, cwd=self.place, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module", autouse=True)
def enroot_is_there() -> None:
    if shutil.which("enroot") is None:
        pytest.skip("enroot is not installed")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("registry")) as server:
        yield server


@pytest.fixture(scope="module")
def pushed(registry: Server, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Push an image to the registry; return its name for enroot and envbuild."""

    def push(config: dict[str, Any], contents: list[bytes], name: str) -> str:
        layout = Layout(tmp_path_factory.mktemp("layout"))
        # the registry answers enroot's first request with an older form, which needs a history
        layout.add(kit.image(layout, contents, config=config, history=[{"created_by": "test"} for _ in contents]))
        registry.push(f"oci:{layout.path}", name, "--format", "v2s2")
        return f"docker://{registry.host}#{name}"

    return push


@pytest.fixture(scope="module")
def image(pushed: Callable[..., str]) -> str:
    return pushed(CONFIG, layers(), "test/app:1")


@pytest.fixture(scope="module")
def strange(pushed: Callable[..., str]) -> list[str]:
    """Return the same with and without an /etc/profile.d, and without an /etc/profile."""
    bare = [*layers(folders=False), tar(file("etc/.wh.profile"))]
    contents = {"folder": layers(), "profile": layers(folders=False), "bare": bare}
    return [pushed(STRANGE, content, f"strange/{name}:1") for name, content in contents.items()]


@pytest.fixture(params=["root", "user"])
def enroot(request: pytest.FixtureRequest, tmp_path: Path) -> Enroot:
    """Return enroot run as root, and as another user: root hides failures."""
    if request.param == "root":
        if os.geteuid():
            pytest.skip("enroot runs as root only in tests of root")
        return Enroot(tmp_path / "enroot")
    here = Path(tempfile.gettempdir())
    for parent in [tmp_path, *tmp_path.parents] if os.geteuid() == 0 else []:
        if here in parent.parents:
            parent.chmod(parent.stat().st_mode | 0o055)
    return Enroot(tmp_path / "enroot", user=os.geteuid() == 0)


def startable(enroot: Enroot, path: Path, how: str) -> str:
    """Return what `enroot start` takes: a container that was made from the file, or the file, mounted by squashfuse."""
    if how == "unpacked":
        enroot.run("create", "-n", "made", path)
        return "made"
    if shutil.which("squashfuse") is None:
        pytest.skip("squashfuse is not installed")
    fuse = Path("/dev/fuse")
    who = NOBODY_ID if enroot.user else os.geteuid()
    if not fuse.exists() or (who and not fuse.stat().st_mode & stat.S_IWOTH):
        pytest.skip("/dev/fuse is not there for this user")
    return str(path)


def exported(image: str, place: Path, form: tuple[str, int] = FORMS[0]) -> Path:
    done = made(
        image, workspace(place / "store"), place / "image.sqsh", form=PackFormat(form[0], DEFAULTS[form[0]], form[1])
    )
    return done.artifact.path


ODD = """
for path in /odd/*; do
    [ -r "$path" ] || [ -h "$path" ] || echo "unreadable: $path"
    case $path in */file11|*/file55|*/file100) [ -x "$path" ] || echo "not executable: $path";; esac
done
cat /odd/folder0/file > /dev/null && tool
touch /scratch/new /data/new && [ -w /scratch/new ] && echo volumes
(: > /new) 2> /dev/null || echo read-only
echo "$PWD|$PATH|$WORDS|$EMPTY|$JSON|$EQUALS|$END|$LOST|$GIVEN|$#|$*"
"""
OUTPUT = """\
entrypoint: it's
tool
volumes
read-only
/data/work dir|/opt/tool/bin:/usr/bin:/bin|a b  c||{"a": "$b"}|a=b|x  ||it's|2|1 2 3
"""


@pytest.mark.parametrize("how", ["unpacked", "mounted"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form[0]}-{form[1]}")
def test_enroot_starts_an_export(image: str, enroot: Enroot, tmp_path: Path, form: tuple[str, int], how: str) -> None:
    """Environment, working directory, entrypoint, command, volumes, and files of every mode."""
    name = startable(enroot, exported(image, tmp_path, form), how)
    assert enroot.run("start", name, "sh", "-c", ODD, "sh", "1", "2 3") == OUTPUT
    assert enroot.run("start", name) == "entrypoint: it's\ncommand: $HOME `id` /data/work dir\n"


@pytest.mark.parametrize("how", ["unpacked", "mounted"])
def test_values_that_enroot_would_change_are_preserved(
    strange: list[str], enroot: Enroot, tmp_path: Path, how: str
) -> None:
    printing = 'printf "%s|" "$PWD" "$PATH" "$LINES2" "$A" "$OTHER" "$QUOTED" "$HOME"'
    script = f'touch "/a b/new" /missing/new /tmp/x/new && {printing}'
    values = ('/w$HOME `id` "q"', "/opt/tool/bin:/usr/bin:/bin", "one\nA=two", "", "/x:${HOME}", "'q'", "/new/home")
    for number, source in enumerate(strange):
        place = tmp_path / str(number)
        place.mkdir(mode=0o755)
        name = startable(enroot, exported(source, place), how)
        assert enroot.run("start", name, "sh", "-c", script) == "".join(f"{value}|" for value in values)
        if how == "unpacked":
            enroot.run("remove", "-f", name)


@pytest.mark.parametrize("how", ["unpacked", "mounted"])
def test_an_image_whose_etc_is_an_absolute_link_starts(enroot: Enroot, tmp_path: Path, how: str) -> None:
    """enroot's hooks read and write /etc/passwd from outside of the container."""
    layout = Layout(tmp_path / "layout")
    users = [file("system/passwd", b"root:x:0:0::/root:/bin/sh\n"), file("system/group", b"root:x:0:\n")]
    moved = tar(folder("system"), *users, symlink("etc", "/system"), symlink("home", "/var/lib"))
    layout.add(kit.image(layout, [*layers(), moved], config={"Cmd": ["true"]}))
    name = startable(enroot, exported(f"oci:{layout.path}", tmp_path), how)
    assert enroot.run("start", name, "sh", "-c", "read line < /etc/passwd; echo ok") == "ok\n"


def commands(text: bytes) -> list[str]:
    """Return the lines of a script without comments; blanks between words do not count."""
    lines = text.decode().splitlines()
    return [re.sub(r"(?<=\S)  +", " ", line).rstrip() for line in lines if line and not line.startswith("#")]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees all of an image")
def test_enroot_import_has_the_same_tree(image: str, enroot: Enroot, tmp_path: Path) -> None:
    """Path, kind, mode, owner, time, target, content and hard links; what differs is in docs/export.md."""
    if enroot.user and not can_mount():
        pytest.skip("enroot-mksquashovlfs has no file capabilities")
    enroot.run("import", "-o", enroot.env["ENROOT_DATA_PATH"] + "/imported.sqsh", image)
    theirs = tmp_path / "theirs", Path(enroot.env["ENROOT_DATA_PATH"]) / "imported.sqsh"
    ours = tmp_path / "ours", exported(image, tmp_path)
    found, expected = (unpack(path, place) for place, path in (ours, theirs))
    paths = {os.fsdecode(path) for path, *_ in differences(found, expected)}
    assert {os.fsdecode(path) for path in found.keys() - expected.keys()} == REPAIRED
    assert not expected.keys() - found.keys()
    # of folders that enroot makes or changes itself, the time is that of the import
    touched = {path for path, entry in expected.items() if entry["mtime"] > NOW}
    assert {os.fsdecode(path) for path in touched if expected[path]["kind"] == "dir"} <= {
        *("", "data", "data/work dir", "etc", "etc/profile.d", "gone", "implied", "opaque", "odd"),
    }
    for path in touched:
        expected[path]["mtime"] = found[path]["mtime"]
    assert expected[b"implied"]["mode"] == 0o755, (
        "a folder that only a higher layer implies; here it keeps its own mode"
    )
    found[b"implied"]["mode"] = 0o755
    left = {os.fsdecode(path) for path, *_ in differences(found, expected)} - REPAIRED
    assert left <= {"etc/rc", "etc/rc.local"} <= paths
    for name in WRITTEN:
        mine, other = ((place / name).read_bytes() for place, _ in (ours, theirs))
        if name.startswith("etc/rc"):
            assert commands(mine) == commands(other)
        else:
            assert mine == other
    labels = [line for line in (ours[0] / "etc/rc").read_text().splitlines() if line.startswith("#")]
    assert labels == ["# org.example.a it's $HOME `id`", "# org.example.b two words"]
    assert set(labels) <= set((theirs[0] / "etc/rc").read_text().splitlines())


def can_mount() -> bool:
    """Return whether enroot's helper may mount an overlay for a normal user."""
    helper = shutil.which("enroot-mksquashovlfs")
    return helper is not None and "security.capability" in os.listxattr(helper)
