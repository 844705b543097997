"""The file system that a unit sees: an overlay of layers, and around it only what every build needs.

The tree of layers may come from an untrusted source: every place in it is found, made and mounted over through
`RootedTree`. Everything is mounted in a private mount namespace and goes away with it, so nothing is ever unmounted
here."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from envbuild.core.folder_removal import discard_folder
from envbuild.core.rooted_tree import RootedTree
from envbuild.core.tree_entry import Entry
from envbuild.core.userns import libc
from envbuild.core.userns.namespaces import SetupError
from envbuild.oci.layers.merged_folders import write_merged_folders

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
OVERLAY_OPTIONS = "userxattr,volatile,index=off,metacopy=off,redirect_dir={},xino=off"
# What a process with uid 0 but without capabilities could still write or read in /proc of the machine.
PROC_READ_ONLY = ("bus", "fs", "irq", "sys", "sysrq-trigger")
PROC_HIDDEN = ("acpi", "kcore", "keys", "latency_stats", "sched_debug", "scsi", "timer_list")
SYS_HIDDEN = ("firmware", "devices/virtual/powercap")  # as Docker: tables of the firmware, meters of energy
HOSTS = "127.0.0.1 localhost envbuild\n::1 localhost ip6-localhost ip6-loopback\n"


def mount_overlay(work: Path, lowers: Sequence[str]) -> Path:
    """Mount the overlay of ``work/upper`` over `lowers` (absolute, bottom first) at ``work/root``. Raises SetupError.

    A tree above them has the folders whose attributes no layer decides there (`write_merged_folders`). The mount
    options are one page: links with short names point to the lower directories.
    """
    root = work / "root"
    for name in ("upper", "root", "l"):
        (work / name).mkdir(exist_ok=True)
    discard_folder(work / "work")  # `volatile` forbids a second use
    (work / "work").mkdir()
    (work / "upper").chmod(0o755)
    (work / "l/empty").mkdir(exist_ok=True)
    names = []
    for number, lower in enumerate(lowers):
        link = work / "l" / str(number)
        link.unlink(missing_ok=True)
        link.symlink_to(lower)
        names.append(f"l/{number}")
    discard_folder(work / "merged")
    (work / "merged").mkdir(mode=0o755)
    if write_merged_folders([Path(lower) for lower in lowers], work / "merged"):
        names.append("merged")
    os.chdir(work)
    stack = ":".join(reversed(names)) or "l/empty"
    for redirect in ("nofollow", "off"):
        options = f"lowerdir={stack},upperdir=upper,workdir=work,{OVERLAY_OPTIONS.format(redirect)}"
        try:
            libc.mount("overlay", "root", "overlay", libc.MS_NODEV, options)
        except OSError as error:
            if error.errno == errno.EINVAL and redirect == "nofollow":
                continue
            raise SetupError.of("mount overlay", error, str(work)) from error
        break
    return root


def bind_mount(
    source: str | Path, tree: RootedTree, path: str, *, read_only: bool = True, recursive: bool = False
) -> None:
    """Show a file or folder of this machine at `path` of `tree`, which is made when it is missing.

    Raises SetupError, and OSError for a place that cannot be made.
    """
    source = Path(source)
    flags = libc.MS_BIND | (libc.MS_REC if recursive else 0)
    is_folder = source.is_dir()
    with tree.open_folder(path) if is_folder else tree.open_file(path) as place:
        check_place(tree, place, path)
        if place.is_folder and not is_folder:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        try:
            libc.mount(str(source), place.handle, flags=flags)
        except OSError as error:
            raise SetupError.of("bind", error, f"{source} at {path}") from error
    if not read_only:
        return
    with tree.open(path) as place:  # the mount, on top of what was opened above
        try:
            make_read_only(place)
            for point in mounts_below(str(place.handle.readlink())) if recursive else ():
                with open_entry(point) as entry:
                    make_read_only(entry)
        except OSError as error:
            raise SetupError.of("bind", error, f"{source} at {path}") from error


def make_read_only(place: Entry) -> None:
    """Make the mount that is open as `place` read-only. Raises OSError."""
    flags = libc.MS_REMOUNT | libc.MS_BIND | libc.MS_RDONLY | locked_flags(place.fd)
    libc.mount("none", place.handle, flags=flags)


@contextlib.contextmanager
def open_entry(path: str) -> Iterator[Entry]:
    """Open what is at a path, and no link. Raises OSError."""
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield Entry(fd)
    finally:
        os.close(fd)


def mounts_below(path: str) -> list[str]:
    """Return where file systems are mounted below a path (proc_pid_mountinfo(5))."""
    points = [
        line.split(" ", 5)[4]
        for line in Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").split("\n")
        if line  # the name of a user's file system may have other ends of lines
    ]
    found = [re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point) for point in points]
    return [point for point in found if point.startswith(f"{path.rstrip('/')}/")]


def locked_flags(descriptor: int) -> int:
    """Mount flags that a remount in a user namespace has to repeat (mount_namespaces(7), "locked mounts")."""
    found = os.fstatvfs(descriptor).f_flag
    flags = found & (libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC | libc.MS_NOATIME | libc.MS_NODIRATIME)
    return flags | (libc.MS_RELATIME if found & 4096 else 0)  # ST_RELATIME


class IsRootError(OSError):
    """A mount would hide the root of an image: the image is at fault, not the machine."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EBUSY, "it is the root of the image", path)


def check_place(tree: RootedTree, place: Entry, path: str) -> None:
    """Raise IsRootError where `path` is the root."""
    if os.path.samestat(place.status, os.fstat(tree.fd)):
        raise IsRootError(path)


def mount_at(tree: RootedTree, path: str, kind: str, flags: int, options: str = "") -> None:
    """Mount a new file system at a folder of `tree`. Raises OSError."""
    with tree.open_folder(path) as place:
        check_place(tree, place, path)
        libc.mount(kind, place.handle, kind, flags, options)


def mount_system(tree: RootedTree, *, sys: bool, memory: int = 0) -> None:
    """Mount /tmp, /run, /proc, /dev, and /sys when requested: its content is the machine's, so builds do not get it.
    memory: bytes that each of /tmp, /run and /dev/shm may hold (0: half of the machine's memory, the kernel's default).

    /tmp and /run come first, because links of an image may lead from the others into them. Raises SetupError, and
    OSError (EBUSY) where links lead to a place that another of these mounts hides.
    """
    for path, mode in (("/proc", 0o555), ("/sys", 0o555), ("/dev", 0o755), ("/run", 0o755), ("/tmp", 0o1777)):
        with tree.open_folder(path) as folder:
            if folder.is_new:
                folder.handle.chmod(mode)
    flags = libc.MS_NOSUID | libc.MS_NODEV
    size = f",size={memory}" if memory else ""
    mount_at(tree, "/tmp", "tmpfs", flags, f"mode=1777{size}")
    devices = {"/tmp": _device(tree, "/tmp")}
    mount_at(tree, "/run", "tmpfs", flags, f"mode=755{size}")
    devices["/run"] = _device(tree, "/run")
    mount_proc(tree)
    devices["/proc"] = _device(tree, "/proc")
    mount_devices(tree, f"mode=1777{size}")
    devices["/dev"] = _device(tree, "/dev")
    with tree.open_folder("/run/lock") as folder:
        folder.handle.chmod(0o1777)
    if sys:
        read_only = flags | libc.MS_NOEXEC | libc.MS_RDONLY
        try:
            mount_at(tree, "/sys", "sysfs", read_only)
        except (
            OSError
        ):  # a user namespace may mount sysfs only with its own network namespace, or not at all when nested
            with contextlib.suppress(SetupError):
                bind_mount("/sys", tree, "/sys", read_only=False, recursive=True)
                if tree.find("/sys/fs/cgroup"):  # the caller may own some: a fresh sysfs has none
                    mount_at(tree, "/sys/fs/cgroup", "tmpfs", read_only, "size=0")
        for name in SYS_HIDDEN:
            if tree.find(f"/sys/{name}"):
                mount_at(tree, f"/sys/{name}", "tmpfs", read_only, "size=0")
    for path, device in devices.items():
        if _device(tree, path) != device:
            raise OSError(errno.EBUSY, "something else is mounted over the place that its link leads to", path)


def _device(tree: RootedTree, path: str) -> int:
    """Return the device number of the file system at `path`; 0 where nothing is."""
    found = tree.find(path)
    return found.st_dev if found else 0


def mount_proc(tree: RootedTree) -> None:
    """Mount a fresh /proc for this pid namespace, with the machine's knobs read-only. Raises SetupError, OSError."""
    try:
        mount_at(tree, "/proc", "proc", libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC)
    except IsRootError:
        raise
    except OSError as error:
        raise SetupError.of("mount proc", error) from error
    for name in {*PROC_READ_ONLY, *_machine_entries(tree)}:
        if tree.find(f"/proc/{name}"):
            with tree.open(f"/proc/{name}") as own:
                bind_mount(own.handle, tree, f"/proc/{name}")
    for name in PROC_HIDDEN:
        found = tree.find(f"/proc/{name}")
        if found and stat.S_ISDIR(found.st_mode):
            mount_at(tree, f"/proc/{name}", "tmpfs", libc.MS_RDONLY, "size=0")
        elif found:
            bind_mount("/dev/null", tree, f"/proc/{name}")


def _machine_entries(tree: RootedTree) -> list[str]:
    """Return the names in /proc of the machine's own entries, not of processes, that belong to this user.

    The kernel has one such entry for all mounts of /proc: its owner could change its mode for the whole machine. In a
    user namespace they belong to no user of it.
    """
    with tree.open("/proc") as folder, os.scandir(folder.handle) as entries:
        return [
            entry.name
            for entry in entries
            if not entry.name.isdecimal() and not entry.is_symlink() and entry.stat().st_uid == os.geteuid()
        ]


def mount_devices(tree: RootedTree, shm: str) -> None:
    """Mount a minimal /dev: six nodes of the machine (read-only, which still lets them be written to), pts, shm, the
    usual links. `shm`: options of /dev/shm. Raises SetupError, OSError."""
    try:
        mount_at(tree, "/dev", "tmpfs", libc.MS_NOSUID | libc.MS_NOEXEC, "mode=755,size=64k")
    except IsRootError:
        raise
    except OSError as error:
        raise SetupError.of("mount tmpfs", error) from error
    for name in DEVICES:
        source = Path("/dev") / name
        if source.exists() and stat.S_ISCHR(source.stat().st_mode):
            bind_mount(source, tree, f"/dev/{name}")
    base = "newinstance,ptmxmode=0666,mode=0620"
    try:
        mount_at(tree, "/dev/pts", "devpts", libc.MS_NOSUID | libc.MS_NOEXEC, f"{base},gid=5")
    except OSError:
        mount_at(tree, "/dev/pts", "devpts", libc.MS_NOSUID | libc.MS_NOEXEC, base)
    mount_at(tree, "/dev/shm", "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, shm)
    with tree.open_folder("/dev") as folder:
        for name, link in (
            ("ptmx", "pts/ptmx"),
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
        ):
            os.symlink(link, name, dir_fd=folder.fd)
