"""Debian packages without dpkg: the control stanza for an index, and the files of those that a base begins with.

A .deb is an ar archive of ``debian-binary``, ``control.tar.*`` and ``data.tar.*`` (deb(5)); its members may be plain,
gzip, xz, bzip2 or zstd."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, cast

from envbuild.build.engines.safe_extract import resolve_in_root
from envbuild.core.errors import InputError
from envbuild.core.store.store import Store, write_atomic

TOP_LINKS = frozenset({"bin", "sbin", "lib", "lib32", "lib64", "libx32"})  # of a merged /usr


def open_member(deb: Path, name: str) -> tuple[str, IO[bytes]]:
    """Return the member of a .deb whose name begins with `name` (``data.tar``): its full name and content. Raises
    InputError."""
    with deb.open("rb") as file:
        if file.read(8) != b"!<arch>\n":
            raise InputError(f"{deb.name} is not a Debian package", hint="lock again", where=str(deb))
        while len(head := file.read(60)) == 60:
            found = head[:16].decode("ascii", "replace").strip().rstrip("/")
            size = int(head[48:58])
            if found.startswith(name):
                return found, io.BytesIO(file.read(size))
            file.seek(size + size % 2, os.SEEK_CUR)
    raise InputError(f"{deb.name} has no {name}", hint="lock again", where=str(deb))


def open_tar(deb: Path, name: str) -> tarfile.TarFile:
    """Open ``control.tar`` or ``data.tar`` of a package as a stream. Raises InputError."""
    found, content = open_member(deb, name)
    suffix = found.removeprefix(name).removeprefix(".")
    if suffix == "zst":
        import zstandard

        stream = cast("IO[bytes]", zstandard.ZstdDecompressor().stream_reader(content))
        return tarfile.open(fileobj=stream, mode="r|")
    if suffix not in ("", "gz", "xz", "bz2"):
        raise InputError(f"{deb.name} is compressed with {suffix}, which is not known", where=str(deb))
    return tarfile.open(fileobj=content, mode="r:" + suffix)  # type: ignore[call-overload,no-any-return]


def read_control(deb: Path) -> str:
    """Return the control stanza of a package, without a final newline."""
    with open_tar(deb, "control.tar") as tar:
        for entry in tar:
            if entry.name.removeprefix("./") == "control":
                content = tar.extractfile(entry)
                if content is not None:
                    return content.read().decode().rstrip("\n")
    raise InputError(f"{deb.name} has no control file", where=str(deb))


def packages_index(files: Iterable[tuple[str, str, Path]], store: Store) -> str:
    """Return ``Packages`` of a flat repository for (file name, sha256, path). Stanzas are cached in the store by
    content."""
    stanzas = []
    cache = store.root / "control"
    cache.mkdir(exist_ok=True)
    for name, sha256, path in files:
        cached = cache / sha256
        try:
            stanza = cached.read_text()
        except FileNotFoundError:
            stanza = read_control(path)
            write_atomic(cached, lambda file, text=stanza: file.write(text.encode()))  # type: ignore[misc]
        stanzas.append(f"{stanza}\nFilename: ./{name}\nSize: {path.stat().st_size}\nSHA256: {sha256}\n")
    return "\n".join(stanzas)


def unpack_packages(debs: Iterable[Path], root: Path) -> None:
    """Extract data.tar of packages into `root`, with owners, modes and times, as ``dpkg-deb --extract`` does.

    Top-level folders of a merged /usr become links when nothing there is yet (releases whose base-files does not
    contain the links). The package base-files comes first, because it contains the folders that others expect. Raises
    InputError, OSError."""
    ordered = sorted(debs, key=lambda path: not path.name.startswith("base-files_"))
    times: dict[str, int] = {}
    for deb in ordered:
        with open_tar(deb, "data.tar") as tar:
            for entry in tar:
                _extract(tar, entry, root, times)
    for path, mtime in times.items():
        os.utime(path, (mtime, mtime))


def _extract(tar: tarfile.TarFile, entry: tarfile.TarInfo, root: Path, times: dict[str, int]) -> None:
    name = entry.name.removeprefix("./").strip("/")
    if name in ("", "."):
        return
    path = _resolve(root, name)
    if entry.isdir():
        if name in TOP_LINKS and not os.path.lexists(path):
            (root / "usr" / name).mkdir(parents=True, exist_ok=True)
            path.symlink_to(f"usr/{name}")
        if path.is_symlink():
            return  # a folder reached through a link of the merged /usr
        path.mkdir(exist_ok=True)
    else:
        if os.path.lexists(path) and not stat.S_ISDIR(path.lstat().st_mode):
            path.unlink()
        if entry.issym():
            path.symlink_to(entry.linkname)
        elif entry.islnk():
            os.link(_resolve(root, entry.linkname.removeprefix("./").strip("/")), path, follow_symlinks=False)
            return
        elif entry.isreg():
            content = tar.extractfile(entry)
            with path.open("wb") as file:
                while content and (chunk := content.read(1 << 20)):
                    file.write(chunk)
        elif entry.isfifo():
            os.mkfifo(path)
        else:
            return  # device nodes: no container has them
    os.chown(path, entry.uid, entry.gid, follow_symlinks=False)
    if not entry.issym():
        path.chmod(entry.mode & 0o7777)
    mtime = int(entry.mtime)
    if entry.isdir():
        times[str(path)] = mtime  # after all of its content
    else:
        os.utime(path, (mtime, mtime), follow_symlinks=False)


def _resolve(root: Path, name: str) -> Path:
    """Return the path of `name` with links in its parents followed inside of `root`; missing parents are made."""
    parent, _, last = name.rpartition("/")
    if last in ("..", "") or ".." in parent.split("/"):
        raise InputError(f"a package holds the path {name}")
    top, slash, rest = parent.partition("/")
    if top in TOP_LINKS and not os.path.lexists(root / top):
        (root / "usr" / top).mkdir(parents=True, exist_ok=True)
        (root / top).symlink_to(f"usr/{top}")
    folder = resolve_in_root(root, top + slash + rest)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / last
