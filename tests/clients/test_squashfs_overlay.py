"""An image has the tree that the kernel shows of its layers: each is unpacked by GNU tar into a folder of its own, its
whiteouts become those of overlayfs, and all are mounted over each other. No rule of layers is written down here.

Parents are listed in every layer, as all programs do that write layers of container images: what overlayfs shows of a
folder is what the uppermost layer records.
"""

from __future__ import annotations

import io
import os
import pickle
import shutil
import socket
import stat
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.oci.tar.reader import read_tar
from envbuild.squashfs.pack.file import read_pack
from envbuild.squashfs.pack.writer import PackWriter
from tests.support import squashfs_snapshot
from tests.support.examples import examples
from tests.support.programs import importing
from tests.support.squashfs_image import write_image
from tests.support.squashfs_snapshot import differences, mounted, unpack

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(not shutil.which("unsquashfs"), reason="unsquashfs is not installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts and owners need root"),
]

EPOCH = 1_700_000_000
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
MOUNT = """
mount --make-rprivate / && mount -t overlay overlay -o "ro,lowerdir=$1" "$2" || exit 99
"$3" "$4" "$2"; status=$?; umount "$2"; exit $status
"""
Entry = tuple[str, bytes, Any]  # (kind, path, content or target)


# layers
def tar(*entries: Entry, parents: bool = True) -> bytes:
    """Return a layer, its entries in that order; folders above them come before them."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape") as archive:
        known: set[bytes] = set()

        def put(kind: str, path: bytes, what: Any) -> None:
            info = tarfile.TarInfo(os.fsdecode(path))
            info.mtime, info.mode, info.uid, info.gid = EPOCH, 0o644, 3, 70_000
            content = None
            if kind == "file":
                info.size, content = len(what), io.BytesIO(what)
            elif kind == "folder":
                info.type, info.mode = tarfile.DIRTYPE, what or 0o755
            else:
                info.type = {"hard": tarfile.LNKTYPE, "symlink": tarfile.SYMTYPE, "fifo": tarfile.FIFOTYPE}[kind]
                info.linkname = os.fsdecode(what)
            archive.addfile(info, content)
            known.add(path)

        put("folder", b".", 0o755)
        for kind, path, what in entries:
            above = path.rpartition(b"/")[0]
            todo = []
            while parents and above and above not in known:
                todo.append(above)
                above = above.rpartition(b"/")[0]
            for folder in reversed(todo):
                put("folder", folder, 0)
            put(kind, path, what)
    return target.getvalue()


def file(path: str | bytes, content: bytes = b"") -> Entry:
    return "file", os.fsencode(path), content


def folder(path: str, mode: int = 0) -> Entry:
    return "folder", path.encode(), mode


def hard_link(path: str, target: str) -> Entry:
    return "hard", path.encode(), target.encode()


def symlink(path: str, target: str) -> Entry:
    return "symlink", path.encode(), target.encode()


def gone(path: str) -> Entry:
    above, slash, name = path.rpartition("/")
    return file(f"{above}{slash}.wh.{name}")


def opaque(path: str) -> Entry:
    return file(f"{path}/.wh..wh..opq" if path else ".wh..wh..opq")


# both views
def overlay(layers: Sequence[bytes], place: Path) -> dict[bytes, dict[str, Any]]:
    """Return the kernel's view."""
    numbers: list[str] = []
    for number, layer in enumerate([tar(), *layers]):
        tree = place / str(number)
        tree.mkdir(parents=True)
        command = [
            "tar",
            "--delay-directory-restore",
            "--numeric-owner",
            "--xattrs",
            "--xattrs-include=*",
            "-xpf",
            "-",
            "-C",
            tree,
        ]
        subprocess.run(command, input=layer, check=True, capture_output=True)
        for path, _, names in [*os.walk(tree)]:
            above = Path(path)
            marks = [name for name in names if name.startswith(WHITEOUT)]
            status = above.stat()
            if OPAQUE in marks and above == tree:
                numbers = ["0"]  # a root cannot be opaque: what is below is left out
            for name in marks:
                (above / name).unlink()
                hidden = above if name == OPAQUE else above / name.removeprefix(WHITEOUT)
                if hidden.is_dir() and not hidden.is_symlink():  # also a folder that is created again
                    os.setxattr(hidden, "trusted.overlay.opaque", b"y")
                elif not os.path.lexists(hidden):
                    os.mknod(hidden, stat.S_IFCHR, 0)
            if marks:
                os.utime(above, ns=(status.st_atime_ns, status.st_mtime_ns))
        numbers.append(str(number))
    at = place / "view"
    at.mkdir()
    command = ["unshare", "-m", "sh", "-c", MOUNT, "sh", ":".join(reversed(numbers)), "view"]
    command += [sys.executable, squashfs_snapshot.__file__]
    done = subprocess.run(command, cwd=place, capture_output=True, env=importing())
    if done.returncode == 99:
        pytest.skip(f"overlayfs cannot be mounted in {place}")
    assert done.returncode == 0, done.stderr
    found: dict[bytes, dict[str, Any]] = pickle.loads(done.stdout)
    return found


def image(layers: Sequence[bytes], place: Path, jobs: int = 1) -> Path:
    """Return the squashfs file of them."""
    packs = []
    for number, layer in enumerate(layers):
        with PackWriter(place / f"{number}.pack", block=4096, jobs=jobs) as writer:
            read_tar(io.BytesIO(layer), writer)
        packs.append(read_pack(place / f"{number}.pack"))
    return write_image(packs, place / "image", epoch=EPOCH, all_root=False).path


def check(place: Path, *layers: bytes) -> dict[bytes, dict[str, Any]]:
    place.mkdir(exist_ok=True)
    expected = overlay(layers, place / "layers")
    written = image(layers, place)
    assert not differences(unpack(written, place / "unpacked"), expected)
    if Path("/dev/loop-control").exists():
        assert not differences(mounted(written, place / "mounted"), expected)
    return expected


# tests
STACKS: dict[str, list[bytes]] = {
    "a folder replaced by a file, and back": [
        tar(file("d/low"), file("d/e/low")),
        tar(file("d", b"file")),
        tar(file("d/new")),
    ],
    "a file replaced by a folder, a link, a pipe": [
        tar(file("a"), file("b"), file("c")),
        tar(folder("a"), symlink("b", "a"), ("fifo", b"c", b"")),
    ],
    "a whiteout of nothing": [tar(file("a")), tar(gone("nothing"), gone("no/where"))],
    "a whiteout and what it hides in one layer": [
        tar(file("a", b"low"), file("b", b"low"), file("d/low"), file("e/low")),
        tar(
            file("a", b"new"),
            gone("a"),
            gone("b"),
            file("b", b"new"),
            gone("d"),
            file("d/new"),
            file("e/new"),
            gone("e"),
        ),
    ],
    "an opaque folder, its mark first": [tar(file("o/low"), file("o/s/low")), tar(opaque("o"), file("o/s/new"))],
    "an opaque folder, its mark last": [tar(file("o/low"), file("o/s/low")), tar(file("o/s/new"), opaque("o"))],
    "opaque folders in each other": [
        tar(file("o/low"), file("o/s/low"), file("o/t/low")),
        tar(opaque("o"), opaque("o/s"), file("o/s/new")),
        tar(file("o/t/newer"), opaque("o/t"), gone("o/s/new")),
    ],
    "an opaque root": [tar(file("low"), file("d/low")), tar(file("new"), opaque(""), file("d/new"))],
    "a deleted folder that comes again": [tar(file("d/a"), file("d/b")), tar(gone("d")), tar(file("d/c"))],
    "hard links": [
        tar(file("a", b"1"), hard_link("b", "a"), hard_link("d/c", "b"), symlink("s", "a"), hard_link("t", "s")),
        tar(file("a", b"2")),
        tar(gone("b")),
    ],
    "a hard link whose target is replaced later": [
        tar(
            file("a", b"1"),
            hard_link("b", "a"),
            hard_link("c", "a"),
            file("a", b"22"),
            hard_link("d", "a"),
            file("c", b"333"),
        )
    ],
    "members that come twice": [
        tar(file("a", b"1"), file("a", b"22"), folder("d", 0o700), file("d/x"), folder("d", 0o711), symlink("a", "d"))
    ],
    "modes of folders": [tar(folder("d", 0o1777), file("d/a")), tar(folder("d", 0o2750), file("d/b"))],
    "layers of nothing": [tar(), tar(file("a")), tar(), tar()],
    "120 layers": [tar(file("same", b"%d" % n), file(f"own/{n}"), gone(f"own/{n - 2}")) for n in range(120)],
}


@pytest.mark.parametrize("name", STACKS)
def test_layers_that_change_each_other(name: str, tmp_path: Path) -> None:
    check(tmp_path / "stack", *STACKS[name])


@pytest.mark.parametrize("options", [("posix",), ("gnu",), ("posix", "0.0"), ("posix", "0.1"), ("posix", "1.0")])
def test_a_folder_packed_by_gnu_tar(options: tuple[str, ...], tmp_path: Path) -> None:
    """Every kind of file, owners, times, names, attributes, holes."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "empty").touch()
    (tree / "plain").write_bytes(b"content" * 3000)
    os.link(tree / "plain", tree / "plain too")
    (tree / "link").symlink_to("plain")
    (tree / "long link").symlink_to("x" * 4000)
    os.link(tree / "link", tree / "link too", follow_symlinks=False)
    os.mkfifo(tree / "pipe")
    os.mknod(tree / "char", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.mknod(tree / "block", stat.S_IFBLK | 0o660, os.makedev(259, 70_000))
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(tree)  # a socket's path is short
        server.bind("socket")
        os.chdir(here)
    base = os.fsencode(tree)
    for name in (b"new\nline", "größe €".encode(), b"\xff\xfe not UTF-8", b"n" * 255, b"-rf *", b".wh", b"tab\t"):
        Path(os.fsdecode(base + b"/" + name)).write_bytes(name)
    deep = tree / ("d" * 200) / ("e" * 200)
    deep.mkdir(parents=True)
    (deep / ("f" * 200)).write_bytes(b"deep")
    os.link(deep / ("f" * 200), tree / "not deep")
    for number, mode in enumerate((0o4755, 0o2711, 0o6755, 0o000, 0o777)):
        (tree / f"mode{number}").write_bytes(b"%d" % number)
        os.chown(tree / f"mode{number}", 2**31 + number, 65_536 + number)
        (tree / f"mode{number}").chmod(mode)
    for number, seconds in enumerate((0, 1, 2**31, 2**32 - 1)):
        (tree / f"time{number}").touch()
        os.utime(tree / f"time{number}", (seconds, seconds))
    if options != ("gnu",):
        os.setxattr(tree / "plain", "user.binary", b"\0\n=\xff\0")
        os.setxattr(tree / "empty", "user.nothing", b"")
        os.setxattr(tree / "mode4", "security.capability", bytes.fromhex("0100000200040000000000000000000000000000"))
        os.setxattr(deep, "trusted.folder", b"f" * 3000)
    for number in range(3):
        with (tree / f"sparse{number}").open("wb") as sparse:
            for at in range(number * 40):
                sparse.seek((at + 1) << 20)
                sparse.write(b"%d" % at * 5000)
            sparse.truncate(50 << 20)
    form, *version = options
    more = [f"--sparse-version={version[0]}"] if version else []
    command = [
        "tar",
        f"--format={form}",
        "--sparse",
        *more,
        "--xattrs",
        "--xattrs-include=*",
        "-C",
        tree,
        "-cf",
        "-",
        ".",
    ]
    layer = subprocess.run(command, check=True, capture_output=True).stdout
    found = check(tmp_path / "stack", layer, tar(gone("plain"), file("mode0", b"new")))
    assert b"socket" not in found and b"pipe" in found and found[b"sparse2"]["size"] == 50 << 20
    assert found[b"plain too"]["size"] == 21_000 and b"plain" not in found


NAMES = st.sampled_from(["a", "b", "c", "d/a", "d/b", "d/e/a", "d/e/b"])
FILES = st.builds(file, NAMES, st.sampled_from([b"", b"1", b"2" * 5000, bytes(9000)]))


@st.composite
def stacks(draw: Any) -> list[bytes]:
    """Layers in which files, links and whiteouts come in any order and more than once; a hard link names a file that
    came before it."""
    layers = []
    for _ in range(draw(st.integers(1, 4))):
        entries: list[Entry] = []
        for _ in range(draw(st.integers(0, 7))):
            files = sorted(
                {os.fsdecode(path) for kind, path, _ in entries if kind in ("file", "hard") and b".wh." not in path}
            )
            kind = draw(st.sampled_from(["file", "file", "hard", "symlink", "gone", "opaque"]))
            if kind == "hard" and files:
                one, other = draw(NAMES), draw(st.sampled_from(files))
                entries += [hard_link(one, other)] if one != other else []
            elif kind == "symlink":
                entries.append(symlink(draw(NAMES), "a"))
            elif kind == "gone":
                entries.append(gone(draw(st.one_of(NAMES, st.sampled_from(["d", "d/e"])))))
            elif kind == "opaque":
                entries.append(opaque(draw(st.sampled_from(["d", "d/e", ""]))))
            else:
                entries.append(draw(FILES))
            if kind == "symlink":  # a link to a symlink is another matter: only files are linked to
                entries = [entry for entry in entries if not (entry[0] == "hard" and entry[2] == entries[-1][1])]
        layers.append(tar(*entries))
    return layers


@examples(40, deadline=None)
@given(stacks())
def test_layers_in_any_order(layers: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as place:
        expected = overlay(layers, Path(place) / "layers")
        assert not differences(unpack(image(layers, Path(place)), Path(place) / "unpacked"), expected)
