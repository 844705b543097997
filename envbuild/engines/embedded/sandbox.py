"""Run commands in a unit's root: a pid namespace whose init mounts everything, runs one command after the other, and
reaps.

The caller (`boxed`) stays outside of the new mount and pid namespaces, as root of the same user namespace, so that it
can read the upper directory afterwards. When init ends, the kernel kills what is left and drops every mount."""

from __future__ import annotations

import contextlib
import errno
import os
import resource  # all imports stand here: after pivot_root there is no interpreter to import from
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envbuild.build.steps import INPUTS
from envbuild.core.userns import libc
from envbuild.core.userns.answer import decode, encode, encode_error
from envbuild.core.userns.namespaces import BIND, SetupError, fork_init, fork_keeper, isolate, private_mounts
from envbuild.engines.embedded import inputs, mounts
from envbuild.engines.embedded.untar import resolve_in_root

POLICY = Path("usr/sbin/policy-rc.d")  # invoke-rc.d asks it; 101 forbids starting services (policy-rc.d(8))
OPEN_FILES = 65536


@dataclass(frozen=True)
class Box:
    """What a root is made of. `lowers`: layer trees, bottom first. `inputs`: folders of ``work/inputs`` to show below
    /run/envbuild.

    `image`: a squashfs file instead of lowers. `binds`: (source, target, read-only). `sys`: show /sys.
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


@dataclass(frozen=True)
class Outcome:
    """`step`: number of the last command, from 0; `code`: its exit status (128 + signal). `notes`: what the box wants
    to tell."""

    step: int = 0
    code: int = 0
    notes: tuple[str, ...] = field(default=())


def boxed(box: Box, commands: Sequence[Sequence[str]], env: Mapping[str, str], *, interactive: bool = False) -> Outcome:
    """Run `commands` (argument lists) until one fails, with this process's stdout and stderr. Raises SetupError,
    OSError.

    This process must be root (`namespaces.become_root`) and must not have threads yet.
    """
    if box.apt:
        env = {**env, "APT_CONFIG": f"{INPUTS}/apt.conf"}
    read, write = os.pipe()
    keeper = fork_keeper()
    if keeper == 0:
        os.close(read)
        _keep(write, box, commands, env, interactive)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(keeper, 0)
    if not answer:
        raise SetupError("init", "the unit's init was killed (out of memory?)")
    step, code, notes = decode(answer, "the init of a unit")
    return Outcome(step, code, tuple(notes))


def _keep(write: int, box: Box, commands: Sequence[Sequence[str]], env: Mapping[str, str], interactive: bool) -> None:
    """Make the namespaces, start init, wait for it; never returns.

    A process of its own: after unshare(CLONE_NEWPID) a process cannot start threads, which compressing the layer needs.
    """
    try:
        isolate(box.network)
        init = fork_init()
        if init == 0:
            _as_init(write, box, commands, env, interactive)
        os.waitpid(init, 0)
    except (SetupError, OSError) as error:
        os.write(write, encode_error(error))
    finally:
        os._exit(0)


def _as_init(
    write: int, box: Box, commands: Sequence[Sequence[str]], env: Mapping[str, str], interactive: bool
) -> None:
    """Everything that pid 1 does; never returns."""
    answer = encode_error(SetupError("init", "unknown"))
    notes: list[str] = []
    try:
        private_mounts()
        root = _mount(box, notes)
        with _no_services(root) if box.build else contextlib.nullcontext():
            libc.pivot_root(root)
            for number, command in enumerate(commands):
                code = _run(command, env, interactive)
                left = _kill_rest()
                notes += left if box.build else []  # squashfuse is among them
                answer = encode((number, code, notes))
                if code:
                    break
    except (SetupError, OSError) as error:
        answer = encode_error(error)
    except BaseException:
        answer = encode_error(SetupError("init", traceback.format_exc()))
    finally:
        sys.stdout.flush()
        os.write(write, answer)
        os._exit(0)


def _mount(box: Box, notes: list[str]) -> Path:
    lowers = box.lowers
    if box.image:
        from envbuild.engines.embedded.images import mount_image

        lower, how = mount_image(Path(box.image), box.work)
        notes.append(how)
        lowers = (str(lower),)
    root = mounts.overlay(box.work, lowers)
    mounts.system(root, sys=box.sys)
    run = root / INPUTS.strip("/")
    run.mkdir()
    for name in box.inputs:
        mounts.bind(box.work / "inputs" / name, run / name)
    if box.apt:
        inputs.apt_files(run)
    if box.build:
        for name, target in (
            ("scratch", run / "work"),
            ("out", run / "out"),
            ("vartmp", resolve_in_root(root, "/var/tmp")),
        ):
            folder = box.work / name
            folder.mkdir(exist_ok=True)
            folder.chmod(0o1777 if name == "vartmp" else 0o755)
            if name != "vartmp" or target.is_dir():
                mounts.bind(folder, target, read_only=False)
    hosts = resolve_in_root(root, "/etc/hosts")
    if hosts.is_file() or not box.build:
        source = Path("/etc/hosts") if box.network else box.work / "hosts"
        if not box.network:
            source.write_text(mounts.HOSTS)
        mounts.bind(source, hosts)
    if box.network and Path("/etc/resolv.conf").is_file():
        mounts.bind(Path("/etc/resolv.conf").resolve(), resolve_in_root(root, "/etc/resolv.conf"))
    for source_name, name, read_only in box.binds:
        _bind(Path(source_name).resolve(), root, name, read_only)
    return root


def _bind(source: Path, root: Path, name: str, read_only: bool) -> None:
    """A bind that a person asked for. Raises SetupError that names it: it says nothing about the machine."""
    try:
        mounts.bind(source, resolve_in_root(root, name), read_only=read_only, recursive=not read_only)
    except SetupError as error:
        why = f"{os.strerror(error.code)} (errno {error.code})"
        raise SetupError(BIND, f"{source}:{name} cannot be mounted: {why}") from error
    except OSError as error:  # its place could not be made
        raise SetupError(BIND, f"{source}:{name}: {error.strerror}: {error.filename}") from error


@contextlib.contextmanager
def _no_services(root: Path) -> Any:
    """policy-rc.d says no while the steps run, and leaves no trace: neither the file nor a new time of its folder."""
    path = resolve_in_root(root, str(POLICY.parent))
    if not path.is_dir() or (path / POLICY.name).exists():
        yield
        return
    relative = "/" / path.relative_to(root)
    before = path.stat().st_mtime_ns
    (path / POLICY.name).write_text("#!/bin/sh\nexit 101\n")
    (path / POLICY.name).chmod(0o755)
    own = path.stat().st_mtime_ns
    yield  # pivot_root happens in here
    if relative.is_dir():
        touched = relative.stat().st_mtime_ns != own
        (relative / POLICY.name).unlink(missing_ok=True)
        if not touched:
            os.utime(relative, ns=(before, before))


def _run(command: Sequence[str], env: Mapping[str, str], interactive: bool) -> int:
    """Run one command to its end, reaping whatever else ends; returns its exit status."""
    child = os.fork()
    if child == 0:
        try:
            _become(interactive)
            os.execvpe(command[0], list(command), dict(env))
        except OSError as error:
            os.write(2, f"envbuild: {command[0]}: {os.strerror(error.errno or 0)}\n".encode())
            os._exit(127 if error.errno == errno.ENOENT else 126)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(126)
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _become(interactive: bool) -> None:
    """From init to a step: its own session, no input, default signals, fewer capabilities."""
    if not interactive:
        os.setsid()
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGQUIT, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    soft = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o022)
    libc.drop_capabilities()


def _kill_rest() -> list[str]:
    """Kill what a step left running; returns a line that names it."""
    names = []
    for entry in sorted(path.name for path in Path("/proc").iterdir()):
        if entry.isdigit() and entry != "1":
            with contextlib.suppress(OSError):
                state = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    names.append(Path(f"/proc/{entry}/comm").read_text().strip())
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    return [f"stopped what the step left running: {', '.join(names)}"] if names else []
