"""squashfuse and unsquashfs, confined: they read files of strangers outside of the box, and have faults by which such a
file writes over their memory (squashfuse 0.1.105 has five). They get no capability that they do not need, a filter of
system calls, and with Landlock no file but their own parts, the image, and where they write.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from envbuild.core.userns import landlock, libc
from envbuild.core.userns.seccomp import Profile, make_program

# Where programs and their libraries are, and what the loader reads.
PARTS = tuple(map(Path, ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", "/nix/store")))
LIBRARY = re.compile(r"^\s*(?:\S+ => )?(/.*) \(0x[0-9a-f]+\)$", re.MULTILINE)
SHORT = 10  # seconds
DESCRIPTORS = Path("/proc/self/fd")
# chown, dac_override, fowner, fsetid, setfcap: what unpacking needs
OF_OWNERS = (0, 1, 3, 4, 31)


def end_with_parent() -> None:
    """Let a program end when this process is killed: a session is in no pid namespace of its own. This process has one
    thread, so a function may run between fork and exec."""
    libc.set_parent_death_signal(signal.SIGKILL)


def program_places(name: str) -> list[Path]:
    """Return where a program and its libraries are: the system's folders, its own file, and the libraries that the
    loader finds for it, of which each may have a prefix of its own (Spack, Homebrew)."""
    found = shutil.which(name)
    return [*PARTS, Path(found).resolve(), *list_libraries(found)] if found else [*PARTS]


def note_script(name: str) -> str:
    """Return what to add to the error of a program: where a script starts it, its place is not known here."""
    with contextlib.suppress(OSError):
        found = shutil.which(name) or ""
        with Path(found).open("rb") as file:
            if file.read(2) == b"#!":
                return f" ({found} is a script, and what it starts is confined: put {name} itself into PATH)"
    return ""


def list_libraries(program: str) -> list[Path]:
    """Return the libraries of a program, as ld.so(8) lists them in place of running it; none of a script, or of a
    program that is linked statically, which prints its usage then."""
    asked = {**os.environ, "LD_TRACE_LOADED_OBJECTS": "1"}
    try:
        done = subprocess.run(
            [program],
            env=asked,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=SHORT,
            preexec_fn=end_with_parent,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return []
    return [Path(path).resolve() for path in LIBRARY.findall(done.stdout)]


def confine(
    name: str, profile: Profile, image: Path, writable: Sequence[Path] = (), kept: Sequence[int] = ()
) -> Callable[[], None]:
    """Return what confines a program between fork and exec: it may read `image`, write below `writable`, and has the
    capabilities `kept`. It ends with this process, whose session is in no pid namespace of its own. This process has
    one thread, so Python may run there. It raises OSError; where the kernel lacks Landlock or filters, the rest holds.
    """
    readable = [*program_places(name), image]
    program = make_program(profile) if libc.has_filters() else b""
    dropped = [number for number in libc.KEPT_CAPABILITIES if number not in kept]

    def prepare() -> None:
        if writable:
            make_others_read_only(writable)
            if image.parent == DESCRIPTORS:
                open_again(image)
        end_with_parent()
        landlock.restrict(readable, writable)
        libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
        libc.drop_capabilities(*dropped)
        if program:
            libc.set_filter(program)

    return prepare


def make_others_read_only(writable: Sequence[Path]) -> None:
    """Make all mounts but `writable` read-only for this process: Landlock leaves modes and owners of files alone.
    Nothing happens where the kernel lacks the call, as it lacks Landlock."""
    libc.unshare(libc.CLONE_NEWNS)
    libc.mount("none", "/", flags=libc.MS_REC | libc.MS_PRIVATE)
    for path in writable:
        libc.mount(str(path), path, flags=libc.MS_BIND)
    with contextlib.suppress(OSError):
        libc.set_read_only("/", True, recursive=True)
        for path in writable:
            libc.set_read_only(path, False)


def open_again(image: Path) -> None:
    """Open an open file, /proc/self/fd/N, under its name: its descriptor is then of a mount that is read-only. Raises
    OSError for another file of that name."""
    number = int(image.name)
    opened = os.open(image.readlink(), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not os.path.sameopenfile(opened, number):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(image))
        os.dup2(opened, number)
    finally:
        os.close(opened)
