"""Debian packages read without dpkg: every compression, a merged /usr, and no path outside the root."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from envbuild.build.engines.deb import packages_index, read_control, unpack_packages
from envbuild.core.errors import InputError
from envbuild.core.store.store import Store

pytestmark = pytest.mark.unit
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root sets owners")

COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.compress,
}
Entry = tuple[str, bytes, str | bytes]  # name, type, link or content


def tar(*entries: Entry) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, kind, value in entries:
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.mtime, info.uid, info.gid = kind, 0o751, 1_000_000, 3, 4
            if isinstance(value, str):
                info.linkname = value
            content = value if isinstance(value, bytes) else b""
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def deb(path: Path, *entries: Entry, suffix: str = "", control: bytes = b"Package: x\nVersion: 1\n\n") -> Path:
    """Write a package with `entries` in its data.tar."""
    pack = COMPRESSED.get(suffix, bytes)
    members = {
        "debian-binary": b"2.0\n",
        f"control.tar{suffix}": pack(
            tar(("./postinst", tarfile.REGTYPE, b"#!"), ("./control", tarfile.REGTYPE, control))
        ),
        f"data.tar{suffix}": pack(tar(*entries)),
    }
    data = b"!<arch>\n"
    for name, content in members.items():
        data += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode() + content
        data += b"\n" * (len(content) % 2)
    path.write_bytes(data)
    return path


def folder(name: str) -> Entry:
    return name, tarfile.DIRTYPE, ""


def file(name: str, content: bytes = b"content") -> Entry:
    return name, tarfile.REGTYPE, content


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_every_compression_is_read(suffix: str, tmp_path: Path) -> None:
    package = deb(tmp_path / "x.deb", folder("./"), file("./a", b"1" * 1001), suffix=suffix)
    assert read_control(package) == "Package: x\nVersion: 1"
    if os.geteuid() == 0:
        unpack_packages([package], tmp_path / "root")
        assert (tmp_path / "root/a").read_bytes() == b"1" * 1001


def test_a_file_that_is_not_such_a_package(tmp_path: Path) -> None:
    odd = deb(tmp_path / "odd.deb", suffix=".lzma")
    other, cut = tmp_path / "other.deb", tmp_path / "cut.deb"
    other.write_bytes(b"PK" * 100)
    cut.write_bytes(odd.read_bytes()[:72])
    for path in (odd, other, cut):
        with pytest.raises(InputError) as caught:
            read_control(path)
        assert caught.value.where == str(path)


def test_the_index_has_each_package_with_its_digest(store: Store, tmp_path: Path) -> None:
    package = deb(tmp_path / "x.deb")
    text = packages_index([("x_1_all.deb", "f" * 64, package)], store)
    assert text == (
        f"Package: x\nVersion: 1\nFilename: ./x_1_all.deb\nSize: {package.stat().st_size}\nSHA256: {'f' * 64}\n"
    )
    package.write_bytes(b"")  # its stanza is cached by its digest
    again = packages_index([("x_1_all.deb", "f" * 64, package)] * 2, store)
    assert again.count("Package: x\n") == 2 and "SHA256: " + "f" * 64 + "\n\nPackage" in again and "Size: 0\n" in again


@as_root
def test_files_have_owners_modes_and_times(tmp_path: Path) -> None:
    root = tmp_path / "root"
    entries = [
        folder("./opt"),
        folder("./opt/x"),
        file("./opt/x/one"),
        ("./opt/x/two", tarfile.LNKTYPE, "./opt/x/one"),
        ("./opt/x/link", tarfile.SYMTYPE, "one"),
        ("./opt/x/pipe", tarfile.FIFOTYPE, ""),
        ("./opt/x/null", tarfile.CHRTYPE, ""),
    ]
    unpack_packages([deb(tmp_path / "x.deb", *entries)], root)
    found = {path.name: path.lstat() for path in sorted((root / "opt/x").iterdir())}
    assert list(found) == ["link", "one", "pipe", "two"]
    assert found["one"].st_ino == found["two"].st_ino
    for status in (*found.values(), (root / "opt").lstat(), (root / "opt/x").lstat()):
        assert (status.st_uid, status.st_gid, status.st_mtime) == (3, 4, 1_000_000)
    assert {oct(found[name].st_mode & 0o7777) for name in ("one", "pipe")} == {"0o751"}
    unpack_packages([deb(tmp_path / "y.deb", file("./opt/x/link", b"new"), file("./opt/x/one", b"newer"))], root)
    assert (root / "opt/x/link").read_bytes() == b"new" and not (root / "opt/x/link").is_symlink()
    assert (root / "opt/x/two").read_bytes() == b"content"


@as_root
def test_top_level_folders_are_links_into_usr(tmp_path: Path) -> None:
    root = tmp_path / "root"
    unpack_packages([deb(tmp_path / "x.deb", folder("./bin"), file("./bin/sh"), file("./lib64/ld.so"))], root)
    assert {name: (root / name).readlink() for name in ("bin", "lib64")} == {
        "bin": Path("usr/bin"),
        "lib64": Path("usr/lib64"),
    }
    assert (root / "usr/bin/sh").is_file() and (root / "usr/lib64/ld.so").is_file()
    unpack_packages([deb(tmp_path / "y.deb", folder("./bin"), folder("./lib"), file("./bin/two"))], root)
    assert (root / "bin").is_symlink() and (root / "usr/bin/two").is_file() and (root / "lib").is_symlink()


@as_root
def test_base_files_comes_first(tmp_path: Path) -> None:
    other = deb(tmp_path / "a_1_all.deb", file("./bin/sh"))
    base = deb(
        tmp_path / "base-files_1_all.deb", folder("./usr"), ("./bin", tarfile.SYMTYPE, "usr/bin"), folder("./usr/bin")
    )
    unpack_packages([other, base], tmp_path / "root")
    assert (tmp_path / "root/usr/bin/sh").is_file() and (tmp_path / "root/bin").is_symlink()


@as_root
@pytest.mark.parametrize("name", ["../out", "a/../../out", "./..", "link/../../out"])
def test_no_path_leaves_the_root(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        unpack_packages([deb(tmp_path / "x.deb", file(name))], tmp_path / "root")
    assert not (tmp_path / "out").exists()


@as_root
def test_a_link_in_the_way_leads_inside_the_root(tmp_path: Path) -> None:
    entries = [("./etc", tarfile.SYMTYPE, str(tmp_path / "outside")), file("./etc/x")]
    unpack_packages([deb(tmp_path / "x.deb", *entries)], tmp_path / "root")
    assert not (tmp_path / "outside").exists()
