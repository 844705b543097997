"""The file system that a unit sees: an overlay of layers, and around it only what every build needs.

All paths are relative to the unit's working folder or below its root; everything is mounted in a private mount
namespace and goes away with it, so nothing is ever unmounted here."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from envbuild.core.userns import libc
from envbuild.core.userns.namespaces import SetupError

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
OVERLAY_OPTIONS = "userxattr,volatile,index=off,metacopy=off,redirect_dir={},xino=off"
# What a process with uid 0 but without capabilities could still write or read in /proc of the machine.
PROC_READ_ONLY = ("bus", "fs", "irq", "sys", "sysrq-trigger")
PROC_HIDDEN = ("acpi", "kcore", "keys", "latency_stats", "sched_debug", "scsi", "timer_list")
HOSTS = "127.0.0.1 localhost envbuild\n::1 localhost ip6-localhost ip6-loopback\n"


def mount_overlay(work: Path, lowers: Sequence[str]) -> Path:
    """Mount the overlay of ``work/upper`` over `lowers` (absolute, bottom first) at ``work/root``. Raises SetupError.

    The mount options are one page: links with short names point to the lower directories.
    """
    root = work / "root"
    for name in ("upper", "root", "l"):
        (work / name).mkdir(exist_ok=True)
    shutil.rmtree(work / "work", ignore_errors=True)  # `volatile` forbids a second use
    (work / "work").mkdir()
    (work / "upper").chmod(0o755)
    (work / "l/empty").mkdir(exist_ok=True)
    names = []
    for number, lower in enumerate(lowers):
        link = work / "l" / str(number)
        link.unlink(missing_ok=True)
        link.symlink_to(lower)
        names.append(f"l/{number}")
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


def bind_mount(source: str | Path, target: Path, *, read_only: bool = True, recursive: bool = False) -> None:
    """Show a file or folder at `target`, which is made when it is missing. Raises SetupError."""
    source = Path(source)
    if not os.path.lexists(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            target.mkdir()
        else:
            target.touch()
    try:
        libc.mount(str(source), target, flags=libc.MS_BIND | (libc.MS_REC if recursive else 0))
        if read_only:
            libc.mount("none", target, flags=libc.MS_REMOUNT | libc.MS_BIND | libc.MS_RDONLY | locked_flags(target))
    except OSError as error:
        raise SetupError.of("bind", error, f"{source} at {target}") from error


def locked_flags(path: Path) -> int:
    """Mount flags that a remount in a user namespace has to repeat (mount_namespaces(7), "locked mounts")."""
    found = os.statvfs(path).f_flag
    flags = found & (libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC | libc.MS_NOATIME | libc.MS_NODIRATIME)
    return flags | (libc.MS_RELATIME if found & 4096 else 0)  # ST_RELATIME


def mount_system(root: Path, *, sys: bool) -> None:
    """Mount /proc, /dev, /run, /tmp, and /sys when requested: its content is the machine's, so builds do not get it.
    Raises SetupError."""
    for name, mode in (("proc", 0o555), ("sys", 0o555), ("dev", 0o755), ("run", 0o755), ("tmp", 0o1777)):
        folder = root / name
        if not folder.is_dir():
            folder.mkdir()
            folder.chmod(mode)
    mount_proc(root / "proc")
    mount_devices(root / "dev")
    flags = libc.MS_NOSUID | libc.MS_NODEV
    libc.mount("tmpfs", root / "run", "tmpfs", flags, "mode=755")
    libc.mount("tmpfs", root / "tmp", "tmpfs", flags, "mode=1777")
    (root / "run/lock").mkdir()
    (root / "run/lock").chmod(0o1777)
    if sys:
        read_only = flags | libc.MS_NOEXEC | libc.MS_RDONLY
        try:
            libc.mount("sysfs", root / "sys", "sysfs", read_only)
        except (
            OSError
        ):  # a user namespace may mount sysfs only with its own network namespace, or not at all when nested
            with contextlib.suppress(SetupError):
                bind_mount("/sys", root / "sys", read_only=False, recursive=True)
                if (cgroups := root / "sys/fs/cgroup").is_dir():  # the caller may own some: a fresh sysfs has none
                    libc.mount("tmpfs", cgroups, "tmpfs", read_only, "size=0")


def mount_proc(target: Path) -> None:
    """Mount a fresh /proc for this pid namespace, with the machine's knobs read-only. Raises SetupError."""
    try:
        libc.mount("proc", target, "proc", libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC)
    except OSError as error:
        raise SetupError.of("mount proc", error) from error
    for name in PROC_READ_ONLY:
        if (target / name).exists():
            bind_mount(target / name, target / name)
    for name in PROC_HIDDEN:
        path = target / name
        if path.is_dir():
            libc.mount("tmpfs", path, "tmpfs", libc.MS_RDONLY, "size=0")
        elif path.exists():
            bind_mount("/dev/null", path)


def mount_devices(target: Path) -> None:
    """Mount a minimal /dev: six nodes of the machine (read-only, which still lets them be written to), pts, shm, the
    usual links."""
    try:
        libc.mount("tmpfs", target, "tmpfs", libc.MS_NOSUID | libc.MS_NOEXEC, "mode=755,size=64k")
    except OSError as error:
        raise SetupError.of("mount tmpfs", error) from error
    for name in DEVICES:
        source = Path("/dev") / name
        if source.exists() and stat.S_ISCHR(source.stat().st_mode):
            bind_mount(source, target / name)
    (target / "pts").mkdir()
    base = "newinstance,ptmxmode=0666,mode=0620"
    try:
        libc.mount("devpts", target / "pts", "devpts", libc.MS_NOSUID | libc.MS_NOEXEC, f"{base},gid=5")
    except OSError:
        libc.mount("devpts", target / "pts", "devpts", libc.MS_NOSUID | libc.MS_NOEXEC, base)
    (target / "shm").mkdir()
    libc.mount("tmpfs", target / "shm", "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, "mode=1777")
    for name, link in (
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ):
        (target / name).symlink_to(link)
