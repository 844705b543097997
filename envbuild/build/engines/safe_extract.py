"""The extraction of archives of sources: with owners and modes that mean something here, and refused where it would
leave its folder.

The rules are those of Python's own filter for data (PEP 706,
https://docs.python.org/3/library/tarfile.html#tarfile.data_filter). They are implemented here because releases of
Python differ in them, and because that filter compares paths first and opens them later (CVE-2025-4517).
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path

from envbuild.core.bombs import UnpackedFiles
from envbuild.core.fixed_time import TIME
from envbuild.core.plain_zip import PlainZipFile
from envbuild.core.rooted_tree import PATH_ERRORS, RootedTree
from envbuild.core.tree_entry import Slot

CHUNK = 1 << 20
FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def extract_tar(tar: tarfile.TarFile, target: Path, files: UnpackedFiles) -> None:
    """Unpack all of `tar` into the folder `target`, under umask 022; the times of folders are not those of the archive.

    Raises TarError for members that would leave it, and for devices, ValueError for more bytes than `files` may have.
    """
    target.mkdir(parents=True, exist_ok=True)
    links: list[tuple[str, str]] = []  # the member, and the path that it leads to
    later: dict[str, tarfile.TarInfo] = {}  # the first regular file of each name, when a link leads to one
    with RootedTree(target, beneath=True) as tree:
        for member in tar:
            files.add(member.size, member.name)
            try:
                _extract(tar, member, tree, links, later, files)
            except OSError as error:
                if error.errno not in PATH_ERRORS:
                    raise
                raise tarfile.TarError(f"{member.name!r}: {error.strerror}") from error
    top = single_folder(target)
    with RootedTree(top or target, beneath=True) as tree:
        for name, path in links:  # where one leads is known when all are there
            if tree.leads_out(path.removeprefix(f"/{top.name}") if top else path):
                raise tarfile.TarError(f"{name!r} is a link that leads out of its folder")


def extract_zip(bundle: PlainZipFile, target: Path, files: UnpackedFiles) -> None:
    """Unpack all of `bundle` into the folder `target`, with permission bits of 0644 or 0755 and the fixed time. No
    member becomes a link.

    Raises BadZipFile for members that would leave the folder or that are damaged, ValueError for more bytes than
    `files` may have."""
    with RootedTree(target, beneath=True) as tree:
        for member in bundle.infolist():
            files.add(member.file_size, member.filename)
            try:
                _extract_zipped(bundle, member, tree)
            except OSError as error:
                if error.errno not in PATH_ERRORS:
                    raise
                raise zipfile.BadZipFile(f"{member.filename!r}: {error.strerror}") from error


def _extract_zipped(bundle: PlainZipFile, member: zipfile.ZipInfo, tree: RootedTree) -> None:
    name = member.filename.lstrip("/")
    if member.is_dir():
        with tree.open_folder(name):
            return
    with (
        tree.open_slot(name) as slot,
        bundle.open(member) as content,  # it reads no more than the size of the member
        os.fdopen(os.open(slot.name, FLAGS, 0o666, dir_fd=slot.fd), "wb") as file,
    ):
        shutil.copyfileobj(content, file, CHUNK)
        os.fchmod(file.fileno(), 0o755 if member.external_attr >> 16 & 0o111 else 0o644)
        file.flush()
        os.utime(file.fileno(), (TIME, TIME))


def single_folder(target: Path) -> Path | None:
    """Return the single folder in an unpacked archive, which takes its place; None if there is more."""
    entries = [path for path in target.iterdir() if path.name != "pax_global_header"]
    return entries[0] if len(entries) == 1 and entries[0].is_dir() and not entries[0].is_symlink() else None


def _extract(
    tar: tarfile.TarFile,
    member: tarfile.TarInfo,
    tree: RootedTree,
    links: list[tuple[str, str]],
    later: dict[str, tarfile.TarInfo],
    files: UnpackedFiles,
) -> None:
    if "\0" in member.name + member.linkname:
        raise tarfile.TarError(f"{member.name!r} is not a path")
    name = member.name.lstrip("/")
    if member.isdir():
        with tree.open_slot(name) as slot:
            if slot.status and stat.S_ISLNK(slot.status.st_mode):  # GNU tar and bsdtar replace it
                os.unlink(slot.name, dir_fd=slot.fd)
        with tree.open_folder(name):
            return
    if not (member.isreg() or member.issym() or member.islnk()):
        raise tarfile.TarError(f"{member.name!r} is a special file")
    if not member.isreg() and member.linkname.startswith("/"):
        raise tarfile.TarError(f"{member.name!r} is a link to an absolute path")
    with tree.open_slot(name) as slot:
        with suppress(FileNotFoundError):  # not written through a link, as GNU tar and bsdtar do not
            os.unlink(slot.name, dir_fd=slot.fd)
        if member.isreg():
            _write(tar, member, slot, member)
        elif member.issym():
            os.symlink(member.linkname, slot.name, dir_fd=slot.fd)
            links.append((member.name, f"{slot.folder}/{member.linkname}"))
        else:
            _link(tar, member, tree, slot, links, later, files)


def _link(
    tar: tarfile.TarFile,
    member: tarfile.TarInfo,
    tree: RootedTree,
    slot: Slot,
    links: list[tuple[str, str]],
    later: dict[str, tarfile.TarInfo],
    files: UnpackedFiles,
) -> None:
    """Make a hard link; of a file that is not there yet, a copy."""
    with tree.open_slot(member.linkname) as other:
        found = other.status
        if found is None:
            if not later:
                later.update((item.name, item) for item in reversed(tar.getmembers()) if item.isreg())
            source = later.get(member.linkname)
            if source is None:
                raise tarfile.TarError(f"{member.name!r} is a link to {member.linkname!r}, which is not a file in it")
            # A compressed archive is unpacked again up to the file, and then up to this member.
            files.add(source.size + source.offset_data + member.offset_data)
            _write(tar, source, slot, member)
            return
        if stat.S_ISDIR(found.st_mode):
            raise tarfile.TarError(f"{member.name!r} is a hard link to a folder")
        os.link(other.name, slot.name, src_dir_fd=other.fd, dst_dir_fd=slot.fd, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):  # a second link, which leads elsewhere from its own folder
        links.append((member.name, f"{slot.folder}/{os.readlink(slot.name, dir_fd=slot.fd)}"))
    if stat.S_ISREG(found.st_mode):
        file = os.open(slot.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=slot.fd)
        try:
            _set_attributes(file, member)
        finally:
            os.close(file)


def _write(tar: tarfile.TarFile, source: tarfile.TarInfo, slot: Slot, member: tarfile.TarInfo) -> None:
    """Write the content of `source`, with the attributes of `member`."""
    content = tar.extractfile(source)
    with os.fdopen(os.open(slot.name, FLAGS, 0o666, dir_fd=slot.fd), "wb") as file:
        while content and (chunk := content.read(CHUNK)):
            file.write(chunk)
        _set_attributes(file.fileno(), member)


def _set_attributes(file: int, member: tarfile.TarInfo) -> None:
    mode = member.mode & (0o755 if member.mode & 0o100 else 0o644) | 0o600
    os.fchmod(file, mode)
    os.utime(file, (member.mtime, member.mtime))
