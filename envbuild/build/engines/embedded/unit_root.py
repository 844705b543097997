"""The root in which commands run: its parts and its mounts, in a mount namespace of its own."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild.build.engines import prepare_inputs
from envbuild.build.engines.embedded import mounts
from envbuild.build.engines.embedded.compiler_cache import mount_cache
from envbuild.build.steps import INPUTS
from envbuild.core.errors import InputError
from envbuild.core.rooted_tree import RootedTree
from envbuild.core.userns.namespaces import BIND, SetupError

ONE_ID = "no subordinate ids: all files of the image are this user's in it, as under enroot"
POLICY = "/usr/sbin/policy-rc.d"  # invoke-rc.d runs it; 101 forbids starting services (policy-rc.d(8))
# Errors for which a place of the root is at fault. /sys is read-only there, and a link may lead into it.
UNUSABLE = (
    errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EBUSY, errno.ENOENT, errno.ENAMETOOLONG, errno.EROFS,
)  # fmt: skip


@dataclass(frozen=True)
class RootSpec:
    """The parts of a root. `lowers`: layer trees, bottom first. `inputs`: folders of ``work/inputs`` to show below
    /run/envbuild.

    `image`: a squashfs file instead of lowers. `binds`: (source, target, read-only); without a source, what
    is at the target becomes a mount. `sys`: show /sys. `one_id`: the
    user namespace has the caller's id alone. `memory`: bytes of each temporary file system, 0: the kernel's default.
    `cache`: that of compilers (`compiler_cache.unit_cache`).
    """

    work: Path
    lowers: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    apt: bool = False
    build: bool = True
    network: bool = False
    sys: bool = False
    image: str = ""
    binds: tuple[tuple[str, str, bool], ...] = ()
    one_id: bool = False
    memory: int = 0
    cache: Mapping[str, Any] | None = None


@contextlib.contextmanager
def mount_root(box: RootSpec, notes: list[str]) -> Iterator[RootedTree]:
    """Mount all parts of `box`; yield the root. Messages for the user go to `notes`.

    Raises SetupError, and InputError for a tree of layers in which no root can be mounted.
    """
    lowers = box.lowers
    if box.image:
        from envbuild.build.engines.embedded.mount_squashfs import mount_image

        lower, how = mount_image(Path(box.image), box.work, one_id=box.one_id)
        notes.append(how)
        lowers = (str(lower),)
    with RootedTree(mounts.mount_overlay(box.work, lowers)) as tree:
        with convert_link_errors(), convert_server_errors():
            _mount_parts(box, tree)
        for source, path, read_only in box.binds:
            if source:
                _bind(Path(source).resolve(), tree, path, read_only)
            else:
                with convert_bind_errors(path, path), tree.open(path) as own:
                    mounts.bind_mount(own.handle, tree, path, read_only=read_only, recursive=True)
        yield tree


def _mount_parts(box: RootSpec, tree: RootedTree) -> None:
    mounts.mount_system(tree, sys=box.sys, memory=box.memory)
    with tree.open_folder(INPUTS) as run:
        if box.apt:
            prepare_inputs.write_apt_files(run.handle)
    for name in box.inputs:
        mounts.bind_mount(box.work / "inputs" / name, tree, f"{INPUTS}/{name}")
    if box.build:
        for name, path in (("scratch", f"{INPUTS}/work"), ("out", f"{INPUTS}/out"), ("vartmp", "/var/tmp")):
            folder = box.work / name
            folder.mkdir(exist_ok=True)
            folder.chmod(0o1777 if name == "vartmp" else 0o755)
            if name != "vartmp" or _is(stat.S_ISDIR, tree, path):
                mounts.bind_mount(folder, tree, path, read_only=False)
    if box.cache:
        mount_cache(box.cache, tree, box.work)
    if not box.build or _is(stat.S_ISREG, tree, "/etc/hosts"):
        source = Path("/etc/hosts") if box.network else box.work / "hosts"
        if not box.network:
            source.write_text(mounts.HOSTS)
        mounts.bind_mount(source, tree, "/etc/hosts")
    if box.network and Path("/etc/resolv.conf").is_file():
        mounts.bind_mount(Path("/etc/resolv.conf").resolve(), tree, "/etc/resolv.conf")


def _is(kind: Callable[[int], bool], tree: RootedTree, path: str) -> bool:
    found = tree.find(path)
    return found is not None and kind(found.st_mode)


@contextlib.contextmanager
def convert_server_errors() -> Iterator[None]:
    """Raise SetupError where squashfuse has ended: 0.1.105 and earlier do for attributes with long names."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ECONNABORTED, errno.ENOTCONN):
            raise
        raise SetupError(
            "mount squashfs", "squashfuse ended while the image was used; without it, unsquashfs is tried"
        ) from None


@contextlib.contextmanager
def convert_link_errors() -> Iterator[None]:
    """Raise InputError where a place of the root cannot be reached: the layers are at fault, not the machine."""
    try:
        yield
    except OSError as error:
        if error.errno not in UNUSABLE or not error.filename:
            raise
        raise InputError(
            f"{os.fsdecode(error.filename)} of the image cannot be used: {error.strerror}",
            hint="use another image, or ask its maintainer to push it again",
        ) from error


def _bind(source: Path, tree: RootedTree, path: str, read_only: bool) -> None:
    """Mount a bind that the user requested. Raises SetupError."""
    with convert_bind_errors(source, path):
        mounts.bind_mount(source, tree, path, read_only=read_only, recursive=True)


@contextlib.contextmanager
def convert_bind_errors(source: str | Path, path: str) -> Iterator[None]:
    """Raise SetupError that names a bind: the machine is not at fault."""
    try:
        yield
    except SetupError as error:
        why = f"{os.strerror(error.code)} (errno {error.code})"
        raise SetupError(BIND, f"{source}:{path} cannot be mounted: {why}") from error
    except OSError as error:  # its place could not be made
        raise SetupError(BIND, f"{source}:{path}: {error.strerror}: {error.filename}") from error


@contextlib.contextmanager
def no_services(tree: RootedTree) -> Iterator[None]:
    """Forbid services by policy-rc.d while the steps run, and leave no trace: neither the file nor a new time of its
    folder. Raises OSError."""
    written = _write_policy(tree)
    yield  # pivot_root happens in here
    if written is None:
        return
    path, before, own = written
    folder = path.parent
    if folder.is_dir():
        touched = folder.stat().st_mtime_ns != own
        path.unlink(missing_ok=True)
        if not touched:
            os.utime(folder, ns=(before, before))


def _write_policy(tree: RootedTree) -> tuple[Path, int, int] | None:
    """Write policy-rc.d where there is none. Return its path in the tree, and the time of its folder before and after;
    None where it has no folder, or exists. Raises InputError for a circle of links, OSError."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    with (
        convert_link_errors(),
        contextlib.suppress(FileNotFoundError, NotADirectoryError),
        tree.open_slot(POLICY, follow=True, make=None) as slot,
    ):
        if slot.status is not None:
            return None
        before = os.fstat(slot.fd).st_mtime_ns
        with os.fdopen(os.open(slot.name, flags, 0o755, dir_fd=slot.fd), "w") as file:
            file.write("#!/bin/sh\nexit 101\n")
            os.fchmod(file.fileno(), 0o755)
        return Path(slot.folder, slot.name), before, os.fstat(slot.fd).st_mtime_ns
    return None
