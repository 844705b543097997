"""Debian packages without dpkg: the control stanza for an index, and the files of those that a base begins with.

A .deb is an ar archive of ``debian-binary``, ``control.tar.*`` and ``data.tar.*`` (deb(5)); its members may be plain,
gzip, xz, bzip2 or zstd."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from envbuild.core import bombs
from envbuild.core.archive_damage import is_damage
from envbuild.core.bounded_tar import BoundedTarFile
from envbuild.core.errors import InputError
from envbuild.core.rooted_tree import PATH_ERRORS, RootedTree
from envbuild.core.store.json_files import read_sealed, write_sealed
from envbuild.core.store.permissions import make_shared_folder
from envbuild.core.store.store import Store
from envbuild.core.tree_entry import Slot

NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_CONTROL = 1 << 20  # bytes of a control file
MAX_CONTROL_TAR = 64 << 20  # of the archive that has it; lists of md5sums are its largest files
TOP_LINKS = frozenset({"bin", "sbin", "lib", "lib32", "lib64", "libx32"})  # of a merged /usr


def open_member(deb: Path, name: str) -> tuple[str, IO[bytes]]:
    """Return the member of a .deb whose name begins with `name` (``data.tar``): its full name and content. Raises
    InputError, ValueError."""
    with deb.open("rb") as file:
        if file.read(8) != b"!<arch>\n":
            raise InputError(f"{deb.name} is not a Debian package", hint="lock again", where=str(deb))
        while len(head := file.read(60)) == 60:
            found = head[:16].decode("ascii", "replace").strip().rstrip("/")
            size = int(head[48:58])
            if size < 0:
                raise ValueError(f"a member of {size} bytes")
            if found.startswith(name):
                return found, io.BytesIO(file.read(size))
            file.seek(size + size % 2, os.SEEK_CUR)
    raise InputError(f"{deb.name} has no {name}", hint="lock again", where=str(deb))


def open_tar(deb: Path, name: str) -> tarfile.TarFile:
    """Open ``control.tar`` or ``data.tar`` of a package as a stream. Raises InputError, and what `convert_damage`
    converts."""
    found, content = open_member(deb, name)
    suffix = found.removeprefix(name).removeprefix(".")
    if suffix == "zst":
        import zstandard

        stream = cast("IO[bytes]", zstandard.ZstdDecompressor().stream_reader(content))
        return BoundedTarFile.open(fileobj=stream, mode="r|")
    if suffix not in ("", "gz", "xz", "bz2"):
        raise InputError(f"{deb.name} is compressed with {suffix}, which is not known", where=str(deb))
    return BoundedTarFile.open(fileobj=content, mode="r:" + suffix)  # type: ignore[call-overload,no-any-return]


def read_control(deb: Path) -> str:
    """Return the control stanza of a package, without a final newline."""
    left = MAX_CONTROL_TAR
    with convert_damage(deb), open_tar(deb, "control.tar") as tar:
        for entry in tar:
            left -= entry.size + bombs.BLOCK
            if left < 0:
                raise ValueError(f"its control.tar has more than {MAX_CONTROL_TAR >> 20} MiB")
            if entry.name.removeprefix("./") == "control":
                content = (
                    tar.extractfile(entry) if entry.isreg() else None
                )  # a link leads to another member, or to none
                if content is not None:
                    if entry.size > MAX_CONTROL:
                        raise ValueError(f"a control file of {entry.size} bytes")
                    return content.read().decode().rstrip("\n")
    raise InputError(f"{deb.name} has no control file", where=str(deb))


def packages_index(files: Iterable[tuple[str, str, Path]], store: Store) -> str:
    """Return ``Packages`` of a flat repository for (file name, sha256, path). Stanzas are cached in the store, with a
    checksum: one that differs is read from the package again."""
    stanzas = []
    cache = store.root / "control"
    make_shared_folder(cache)
    for name, sha256, path in files:
        cached = cache / f"{sha256}.json"
        record = read_sealed(cached)
        stanza = record.get("control") if isinstance(record, dict) else None
        if not isinstance(stanza, str) or len(stanza) > MAX_CONTROL:
            stanza = read_control(path)
            write_sealed(cached, {"control": stanza})
        stanzas.append(f"{stanza}\nFilename: ./{name}\nSize: {path.stat().st_size}\nSHA256: {sha256}\n")
    return "\n".join(stanzas)


def unpack_packages(debs: Iterable[Path], root: Path) -> None:
    """Extract data.tar of packages into `root`, with owners, modes and times, as ``dpkg-deb --extract`` does.

    Top-level folders of a merged /usr become links when nothing there is yet (releases whose base-files does not
    contain the links). The package base-files comes first, because it contains the folders that others expect. Raises
    InputError, OSError."""
    ordered = sorted(debs, key=lambda path: not path.name.startswith("base-files_"))
    times: dict[str, int] = {}
    with RootedTree(root) as tree:
        for deb in ordered:
            files = bombs.UnpackedFiles(deb.stat().st_size)
            with convert_damage(deb), open_tar(deb, "data.tar") as tar:
                for entry in tar:
                    files.add(entry.size, entry.name)
                    with convert_path_errors(deb, entry.name):
                        _extract(tar, entry, tree, times)
        for path, mtime in times.items():
            with tree.open(path) as folder:
                os.utime(folder.handle, (mtime, mtime))


@contextmanager
def convert_damage(deb: Path) -> Iterator[None]:
    """Raise InputError for a package that cannot be read, or only with too much memory."""
    try:
        yield
    except Exception as error:
        zstd = type(error).__module__.startswith("zstandard")  # a package may need none
        if not (is_damage(error) or zstd):
            raise
        raise InputError(
            f"{deb.name} is damaged, it cannot be unpacked: {error}",
            hint="lock again with another version of the package: envbuild lock NAME --upgrade PACKAGE",
        ) from error


@contextmanager
def convert_path_errors(deb: Path, name: str) -> Iterator[None]:
    """Raise InputError for the path `name` of a package where it is at fault: its links go in a circle, for example."""
    try:
        yield
    except OSError as error:
        if error.errno not in PATH_ERRORS:
            raise
        raise InputError(
            f"{deb.name} cannot be unpacked: {name}: {error.strerror}",
            hint="lock again with another version of the package: envbuild lock NAME --upgrade PACKAGE",
        ) from error


def _extract(tar: tarfile.TarFile, entry: tarfile.TarInfo, tree: RootedTree, times: dict[str, int]) -> None:
    if "\0" in entry.name + entry.linkname:
        raise tarfile.TarError(f"{entry.name!r} is not a path")
    name = entry.name.removeprefix("./").strip("/")
    if name in ("", "."):
        return
    with _open_slot(tree, name, is_folder=entry.isdir()) as slot:
        if entry.isdir():
            _make_folder(entry, slot, tree, times)
            return
        found = slot.status
        if found is not None and not stat.S_ISDIR(found.st_mode):
            os.unlink(slot.name, dir_fd=slot.fd)
        if entry.issym():
            os.symlink(entry.linkname, slot.name, dir_fd=slot.fd)
            os.chown(slot.name, entry.uid, entry.gid, dir_fd=slot.fd, follow_symlinks=False)
            os.utime(slot.name, (int(entry.mtime),) * 2, dir_fd=slot.fd, follow_symlinks=False)
        elif entry.islnk():
            with _open_slot(tree, entry.linkname.removeprefix("./").strip("/")) as other:
                if other.status is not None and stat.S_ISDIR(other.status.st_mode):
                    raise tarfile.TarError(f"{entry.name!r} is a hard link to a folder")
                os.link(other.name, slot.name, src_dir_fd=other.fd, dst_dir_fd=slot.fd, follow_symlinks=False)
        elif entry.isreg():
            with os.fdopen(os.open(slot.name, NEW_FILE, 0o666, dir_fd=slot.fd), "wb") as file:
                content = tar.extractfile(entry)
                while content and (chunk := content.read(1 << 20)):
                    file.write(chunk)
                file.flush()
                set_attributes(entry, file.fileno())
        elif entry.isfifo():
            os.mkfifo(slot.name, dir_fd=slot.fd)
            fifo = os.open(slot.name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=slot.fd)
            try:
                set_attributes(entry, fifo)
            finally:
                os.close(fifo)
        # device nodes are left out: no container has them


def _make_folder(entry: tarfile.TarInfo, slot: Slot, tree: RootedTree, times: dict[str, int]) -> None:
    found = slot.status
    if found is not None and stat.S_ISLNK(found.st_mode):
        return  # a folder reached through a link of the merged /usr
    if found is None:
        os.mkdir(slot.name, dir_fd=slot.fd)
    folder = os.open(slot.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=slot.fd)
    try:
        set_attributes(entry, folder)
    finally:
        os.close(folder)
    times[f"{slot.folder}/{slot.name}"] = int(entry.mtime)  # after all of its content


def set_attributes(entry: tarfile.TarInfo, file: int) -> None:
    """Set owner, mode and time of an open file."""
    os.chown(file, entry.uid, entry.gid)
    os.chmod(file, entry.mode & 0o7777)
    os.utime(file, (int(entry.mtime),) * 2)


@contextmanager
def _open_slot(tree: RootedTree, name: str, *, is_folder: bool = False) -> Iterator[Slot]:
    """Yield the place of `name` in the tree, with links in its parents followed; missing parents are made.

    Top-level folders of a merged /usr become links first, if they are missing.
    """
    top, _, rest = name.partition("/")
    if ".." in name.split("/"):
        raise InputError(f"a package holds the path {name}")
    if top in TOP_LINKS and (rest or is_folder):
        with tree.open_slot(top) as slot:
            if slot.status is None:
                with tree.open_folder(f"usr/{top}"):
                    os.symlink(f"usr/{top}", slot.name, dir_fd=slot.fd)
    with tree.open_slot(name) as slot:
        yield slot
