"""A squashfs file as a lower directory: mounted by the kernel, by squashfuse, or unpacked; whichever this machine
allows."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from envbuild.build.engines.embedded.confined_program import OF_OWNERS, confine, end_with_parent, note_script
from envbuild.build.engines.embedded.image_content import check_content, check_unpacked, has_all_but_devices
from envbuild.build.engines.embedded.loop_device import loop_device
from envbuild.build.engines.error_report import FULL
from envbuild.core.errors import VerifyError
from envbuild.core.free_space import FULL_BELOW, free_bytes, is_full, write_through
from envbuild.core.regular_file import open_regular
from envbuild.core.userns import libc
from envbuild.core.userns.namespaces import SetupError
from envbuild.core.userns.profiles import SQUASHFUSE, UNSQUASHFS

FUSE = "/dev/fuse"
NOT_FATAL = 2  # the exit code of unsquashfs (4.5 and later) where an owner or a device could not be made
SERVERS: list[subprocess.Popen[bytes]] = []  # the squashfuse programs of this process
END_BYTES = 1 << 16  # of what a program prints, at each end
WAIT = 5.0  # seconds until squashfuse must answer
OWNER = "rootmode=40000,user_id=0,group_id=0,allow_other"  # of a FUSE mount (linux/Documentation/filesystems/fuse.rst)


def mount_image(image: Path, work: Path, *, one_id: bool = False) -> tuple[Path, str]:
    """Make the content of `image` visible in ``work/image``, in this mount namespace. Returns it and a line that names
    the way.

    one_id: no other id than 0 can own files here, so that all files have it.

    Raises SetupError when no way is left, VerifyError for a damaged file, and OSError where unpacking filled the disk.
    """
    target = work / "image"
    target.mkdir()
    # One file for all ways, the check and the programs: another one may get its name meanwhile.
    with open_regular(image) as opened, named_errors(image):
        if not (why := mount_by_kernel(opened.fileno(), target)):
            return target, f"{image.name} is mounted by the kernel"
        tried = [why]
        content = Path(f"/proc/self/fd/{opened.fileno()}")
        why = squashfuse_obstacle()
        if not why:
            check_content(content)
            why = start_squashfuse(content, target, "uid=0,gid=0" if one_id else "")
        if not why:
            return target, f"{image.name} is mounted by squashfuse"
        tried.append(why)
        if not shutil.which("unsquashfs"):
            tried.append("unsquashfs is not installed")
        else:
            check_unpacked(content)
            done = unpack(content, target)
            raise_full_disk(done, target)
            why = "; ".join(tried)
            if done.returncode == 0:
                return target, f"{image.name} was unpacked to {work} ({why})"
            if done.returncode == NOT_FATAL and has_all_but_devices(content, target, owners=not one_id):
                without = "" if one_id else " without its device nodes"
                return target, f"{image.name} was unpacked to {work}{without} ({why})"
            tried.append(f"unsquashfs: {last_line(done.stderr, 'it failed')}{note_script('unsquashfs')}")
    raise SetupError("mount squashfs", "; ".join(tried))


def mount_by_kernel(number: int, target: Path) -> str:
    """Mount an open file. Returns why that failed, or ""."""
    try:
        with loop_device(number) as device:
            libc.mount(device, target, "squashfs", libc.MS_RDONLY | libc.MS_NODEV)
    except OSError as error:
        return f"mount: {error.filename}: {error.strerror}" if error.filename else f"mount: {error.strerror}"
    return ""


@contextlib.contextmanager
def named_errors(image: Path) -> Iterator[None]:
    """Let errors about the content of a file name the file."""
    try:
        yield
    except VerifyError as error:
        raise VerifyError.of(replace(finding, where=str(image)) for finding in error.findings) from None


def raise_full_disk(done: subprocess.CompletedProcess[str], target: Path) -> None:
    """Raise OSError if unsquashfs filled the disk of `target`. Its exit code may be NOT_FATAL then, too. The words may
    be those of a file's name."""
    found = FULL.search(done.stderr.encode()) if done.returncode else None
    if found and b"quota" in found[0]:
        write_through(target.with_name("probe"), FULL_BELOW)
    elif found and is_full(found, free_bytes(target)):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def unpack(image: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Run unsquashfs on an open file, /proc/self/fd/N. Raises SetupError where it cannot be confined, as when another
    file has the name of the open one."""
    words = ("unsquashfs", "-quiet", "-no-progress", "-force", "-dest", str(target), str(image))
    prepare = confine("unsquashfs", UNSQUASHFS, image, [target], OF_OWNERS)
    try:
        return run_program(*words, prepare=prepare, opened=[int(image.name)])
    except subprocess.SubprocessError:
        raise SetupError(
            "mount squashfs", "unsquashfs cannot be confined, or the file was exchanged meanwhile"
        ) from None


def run_program(
    *arguments: str, prepare: Callable[[], None] | None = None, opened: Sequence[int] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with the descriptors `opened`. Return its exit code and, as stderr, the first and the
    last of what it printed: unsquashfs has a line for each file that it cannot make, and an image may have millions."""
    with subprocess.Popen(
        arguments,
        pass_fds=opened,
        stdin=subprocess.PIPE,  # an own pipe: by a descriptor of /dev/null its mode could be changed
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=prepare or end_with_parent,
    ) as program:
        assert program.stdin and program.stdout
        program.stdin.close()
        first = last = b""
        while part := os.read(program.stdout.fileno(), END_BYTES):
            room = END_BYTES - len(first)
            first, last = first + part[:room], (last + part[room:])[-END_BYTES:]
    printed = (first + last).decode(errors="replace")  # names of files
    return subprocess.CompletedProcess(arguments, program.returncode, stderr=printed)


def last_line(text: str, otherwise: str) -> str:
    """Return the line in which unsquashfs reports the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and "dmesg" not in line]
    return lines[-1].removesuffix(".") if lines else otherwise


def squashfuse_obstacle() -> str:
    """Return why squashfuse cannot be tried here, "" when it can."""
    if not shutil.which("squashfuse"):
        return "squashfuse is not installed"
    try:
        os.close(os.open(FUSE, os.O_RDWR))
    except OSError as error:
        return f"squashfuse: {FUSE} cannot be opened: {error.strerror}"
    return ""


def start_squashfuse(image: Path, target: Path, options: str) -> str:
    """Mount a FUSE file system, and start squashfuse for it and an open file, /proc/self/fd/N; it ends with this
    process. Returns why that failed, or "".

    squashfuse gets the mount as a descriptor (libfuse 3.3 and later), so that it needs no rights for that."""
    fuse = os.open(FUSE, os.O_RDWR | os.O_CLOEXEC)
    try:
        kept = libc.MS_RDONLY | libc.MS_NOSUID | libc.MS_NODEV  # as libfuse has it
        libc.mount("squashfuse", target, "fuse.squashfuse", kept, f"fd={fuse},{OWNER}")
        words = ["squashfuse", "-f", *(["-o", options] if options else []), str(image), f"/dev/fd/{fuse}"]
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(fuse, int(image.name)),
            start_new_session=True,  # without a terminal
            preexec_fn=confine("squashfuse", SQUASHFUSE, image),
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"squashfuse: {error}"
    finally:
        os.close(fuse)  # where squashfuse has ended, nothing waits for it then
    if is_served(target):
        SERVERS.append(child)
        return ""
    ended = child.poll()
    child.kill()
    child.wait()
    with contextlib.suppress(OSError):
        libc.umount(target)
    why = f"ended with exit code {ended}" if ended is not None else f"did not mount in {WAIT} s"
    return f"squashfuse {why}{note_script('squashfuse')}"


def end_servers() -> None:
    """End the squashfuse programs that this process started: one that was taken over may have dropped the signal of its
    parent's death, which belongs to a thread."""
    while SERVERS:
        server = SERVERS.pop()
        server.kill()
        with contextlib.suppress(ChildProcessError):
            server.wait()


def is_served(target: Path) -> bool:
    """Return whether the server of a FUSE mount answers in time. That is tried in a process of its own, because
    it waits for the answer."""
    process = os.fork()
    if not process:
        with contextlib.suppress(BaseException):
            list(target.iterdir())
            os._exit(0)
        os._exit(1)
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return status == 0
        time.sleep(0.005)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return False
