"""Packages unpacked without dpkg: what they hold, and that their links never lead out of the root."""

from __future__ import annotations

import errno
import gzip
import os
import stat
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from envbuild.build.engines import deb
from envbuild.core.errors import InputError
from envbuild.core.link_walk import LINKS
from envbuild.core.store.store import Store
from tests.support.link_chains import STYLES, TOO_MANY, canary, chain, unchanged
from tests.support.tiny_root import EPOCH, ar, entry, make_deb, tar_bytes

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away"),
]
DIR, HARD, LINK, FIFO, DEVICE = (
    tarfile.DIRTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE,
)  # fmt: skip
Entry = tuple[tarfile.TarInfo, bytes]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return canary(tmp_path / "outside")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def package(folder: Path, entries: Sequence[Entry], name: str = "evil_1_all.deb") -> Path:
    path = folder / name
    path.write_bytes(make_deb("Package: x\nVersion: 1\n", entries))
    return path


def links(found: dict[str, str]) -> list[Entry]:
    parents = sorted({str(Path(name).parent) for name in found} - {"."})
    folders = [(entry(f"./{name}", DIR), b"") for name in parents]
    return folders + [(entry(f"./{name}", LINK, link=target), b"") for name, target in found.items()]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("length", [1, LINKS, LINKS + 1, 60])
def test_a_chain_of_links_never_leads_out(root: Path, outside: Path, tmp_path: Path, length: int, style: str) -> None:
    """A file and a hard link behind it: inside for as many links as the kernel follows, else refused."""
    content = [(entry("./z0/pwned"), b"x"), (entry("./stolen", HARD, link="./z0/secret"), b"")]
    inner = [(entry(f".{outside}/secret"), b"inside")]
    evil = package(tmp_path, [*inner, *links(chain(length, str(outside), style)), *content])
    with unchanged(outside):
        if length > LINKS:
            with pytest.raises(InputError, match=f"evil_1_all.deb cannot be unpacked: ./.*z0.*: {TOO_MANY}") as caught:
                deb.unpack_packages([evil], root)
            assert caught.value.hint.startswith("lock again")
        else:
            deb.unpack_packages([evil], root)
            assert (root / str(outside).lstrip("/") / "pwned").read_bytes() == b"x"
            assert (root / "stolen").read_bytes() == b"inside"
            assert (root / "stolen").stat().st_nlink == 2


@pytest.mark.parametrize(
    "entries",
    [
        [(entry("./usr", LINK, link="{}"), b""), (entry("./lib/x"), b"x")],
        [(entry("./usr", LINK, link="{}"), b""), (entry("./bin", DIR), b"")],
        [(entry("./dir", LINK, link="{}"), b""), (entry("./dir", DIR, mode=0o700, uid=7), b"")],
        [(entry("./dir", LINK, link="{}/sub"), b""), (entry("./dir/deep"), b"x")],
        [(entry("./secret", LINK, link="{}/secret"), b""), (entry("./secret", mode=0o777), b"x")],
        [(entry("./secret", LINK, link="{}/secret"), b""), (entry("./hard", HARD, link="./secret"), b"")],
        [(entry("./secret", LINK, link="{}/secret", uid=7), b""), (entry("./secret", FIFO), b"")],
        [(entry("./lib", LINK, link="{}"), b""), (entry("./lib/x/y", DIR), b"")],
    ],
)  # fmt: skip
def test_a_link_never_leads_out(root: Path, outside: Path, tmp_path: Path, entries: list[Entry]) -> None:
    for info, _ in entries:
        info.linkname = info.linkname.format(outside)
    with unchanged(outside):
        deb.unpack_packages([package(tmp_path, entries)], root)
    for path in root.rglob("*"):
        assert not (path.is_symlink() and path.name == "x")


@pytest.mark.parametrize("name", ["../pwned", "a/../../pwned", "usr/.."])
def test_names_with_dots_are_refused(root: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="a package holds the path"):
        deb.unpack_packages([package(tmp_path, [(entry(name), b"x")])], root)
    with pytest.raises(InputError, match="a package holds the path"):
        deb.unpack_packages([package(tmp_path, [(entry("x", HARD, link=name), b"")])], root)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evil_1_all.deb", "root"]


def test_paths_that_make_no_sense_are_refused(root: Path, tmp_path: Path) -> None:
    for number, entries in enumerate(
        [
            [(entry("./x", HARD, link="./missing"), b"")],
            [(entry("./x"), b""), (entry("./x/y"), b"")],
            [(entry("./x", DIR), b""), (entry("./x"), b"")],
            [(entry("./" + "x" * 256), b"")],
        ]
    ):
        (tmp_path / str(number)).mkdir()
        with pytest.raises(InputError, match=r"evil_1_all.deb cannot be unpacked: \./"):
            deb.unpack_packages([package(tmp_path, entries)], tmp_path / str(number))


@pytest.mark.parametrize("place", ["Package", "checksum", "{"])
def test_a_damaged_control_stanza_of_the_store_is_read_from_the_package_again(tmp_path: Path, place: str) -> None:
    store, deb_file = Store.open(tmp_path / "s"), package(tmp_path, [])
    cached, first = tmp_path / f"s/control/{'a' * 64}.json", index(store, deb_file)
    written = cached.read_bytes()
    at = written.index(place.encode())
    cached.write_bytes(written[:at] + bytes([written[at] ^ 1]) + written[at + 1 :])
    assert index(store, deb_file) == first and "Package: x" in first
    cached.write_bytes(b"[" * 70)
    assert index(store, deb_file) == first and cached.read_bytes() == written
    cached.write_bytes(written.replace(b"Package: x", b"Package: y"))
    assert index(store, deb_file) == first and cached.read_bytes() == written


def index(store: Store, deb_file: Path) -> str:
    return deb.packages_index([("x.deb", "a" * 64, deb_file)], store)


def test_what_is_unpacked(root: Path, tmp_path: Path) -> None:
    """As ``dpkg-deb --extract`` does it: owners, modes, times; top-level folders of a merged /usr become links."""
    base = [
        (entry("./", DIR), b""),
        (entry("./usr", DIR), b""),
        (entry("./usr/share", DIR, mode=0o2755, uid=3), b""),
        (entry("./bin", LINK, link="usr/bin", uid=4), b""),
    ]
    more = [
        (entry("./bin/tool", mode=0o4755, uid=5), b"tool"),
        (entry("./lib/x86/so", mode=0o644), b"so"),
        (entry("./sbin", DIR), b""),
        (entry("./usr/share/again", mode=0o600), b"one"),
        (entry("./usr/share/again", mode=0o640), b"two"),
        (entry("./usr/share/hard", HARD, link="./usr/share/again"), b""),
        (entry("./usr/share/pipe", FIFO, mode=0o622, uid=6), b""),
        (entry("./usr/share/null", DEVICE), b""),
    ]
    before = os.umask(0o022)
    try:
        deb.unpack_packages(
            [package(tmp_path, more, "a_1_all.deb"), package(tmp_path, base, "base-files_1_all.deb")], root
        )
    finally:
        os.umask(before)
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        kind = {stat.S_IFDIR: "d", stat.S_IFLNK: "l", stat.S_IFIFO: "p"}.get(stat.S_IFMT(status.st_mode), "f")
        text = str(path.readlink()) if kind == "l" else path.read_text() if kind == "f" else ""
        found[str(path.relative_to(root))] = (kind, oct(stat.S_IMODE(status.st_mode)), status.st_uid, text)
        if path.name not in ("lib", "sbin", "x86", "bin"):
            assert path.lstat().st_mtime == EPOCH - 1000, path
    assert (root / "bin").lstat().st_mtime == EPOCH - 1000
    assert found == {
        "bin": ("l", "0o777", 4, "usr/bin"),
        "lib": ("l", "0o777", 0, "usr/lib"),
        "sbin": ("l", "0o777", 0, "usr/sbin"),
        "usr": ("d", "0o755", 0, ""),
        "usr/bin": ("d", "0o755", 0, ""),
        "usr/bin/tool": ("f", "0o4755", 5, "tool"),
        "usr/lib": ("d", "0o755", 0, ""),
        "usr/lib/x86": ("d", "0o755", 0, ""),
        "usr/lib/x86/so": ("f", "0o644", 0, "so"),
        "usr/sbin": ("d", "0o755", 0, ""),
        "usr/share": ("d", "0o2755", 3, ""),
        "usr/share/again": ("f", "0o640", 0, "two"),
        "usr/share/hard": ("f", "0o640", 0, "two"),
        "usr/share/pipe": ("p", "0o622", 6, ""),
    }
    assert (root / "usr/share/hard").stat().st_nlink == 2


@pytest.mark.parametrize("size", [b"-60", b"many"])
def test_a_member_without_a_size_is_refused(tmp_path: Path, size: bytes) -> None:
    path = tmp_path / "x.deb"
    path.write_bytes(b"!<arch>\n" + b"%-48s%-10s`\n" % (b"debian-binary", size) + bytes(100))
    with pytest.raises(InputError):
        deb.read_control(path)


@pytest.mark.parametrize("suffix", ["gz", "xz", "bz2", "zst"])
def test_a_damaged_package_is_refused(tmp_path: Path, suffix: str) -> None:
    content = {"gz": b"\x1f\x8b\x08", "xz": b"\xfd7zXZ\0", "bz2": b"BZh9", "zst": b"\x28\xb5\x2f\xfd"}[
        suffix
    ] + b"x" * 99
    head = b"%-48s%-10d`\n" % (b"control.tar." + suffix.encode(), len(content))
    (tmp_path / "x.deb").write_bytes(b"!<arch>\n" + head + content)
    with pytest.raises(InputError):
        deb.read_control(tmp_path / "x.deb")


def test_a_hard_link_to_a_folder(tmp_path: Path, root: Path) -> None:
    path = package(tmp_path, [(entry("./usr", DIR), b""), (entry("./bin", HARD, link="./usr"), b"")])
    with pytest.raises(InputError, match="is a hard link to a folder"):
        deb.unpack_packages([path], root)


@pytest.mark.parametrize("kind", [LINK, HARD])
@pytest.mark.parametrize("target", ["/etc/passwd", "control"])
def test_a_control_file_that_is_a_link_is_none(tmp_path: Path, kind: bytes, target: str) -> None:
    control = tar_bytes([(entry("./control", kind, link=target), b"")], "w:gz")
    members = {"debian-binary": b"2.0\n", "control.tar.gz": control, "data.tar.gz": tar_bytes([], "w:gz")}
    (tmp_path / "x.deb").write_bytes(ar(members))
    with pytest.raises(InputError, match=r"x\.deb has no control file"):
        deb.read_control(tmp_path / "x.deb")


def test_a_name_with_a_null_is_refused(tmp_path: Path, root: Path) -> None:
    odd = entry("./usr", DIR)
    odd.pax_headers = {"path": "./a\0b"}
    with pytest.raises(InputError, match="has a name that is none"):
        deb.unpack_packages([package(tmp_path, [(odd, b"")])], root)


def test_a_wrong_checksum_of_gzip_is_damage_of_the_package(tmp_path: Path) -> None:
    """gzip raises an OSError without a number for it; one with a number is of the disk."""
    content = bytearray(gzip.compress(b"text", mtime=0))
    content[-8] ^= 1
    with pytest.raises(InputError, match="is damaged"), deb.convert_damage(tmp_path / "x.deb"):
        gzip.decompress(content)
    with pytest.raises(OSError, match="No space"), deb.convert_damage(tmp_path / "x.deb"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
