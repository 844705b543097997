"""The sandbox of a unit's commands: a pid namespace whose init mounts everything, runs one command after the other, and
reaps.

The caller (`run_in_sandbox`) remains outside of the new mount and pid namespaces, as root of the same user namespace,
so that it can read the upper directory afterwards. When init ends, the kernel kills what is left and drops every
mount."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import signal
import sys
import termios
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from envbuild.build.engines.embedded.unit_root import RootSpec, mount_root, no_services
from envbuild.build.steps import INPUTS
from envbuild.core.console import Reporter
from envbuild.core.errors import EnvbuildError
from envbuild.core.sealed_interpreter import describe_crash, forbid_imports
from envbuild.core.text import human_list, printable
from envbuild.core.userns import libc
from envbuild.core.userns.answer import decode, encode, encode_error
from envbuild.core.userns.id_maps import drop_groups, has_own_namespace
from envbuild.core.userns.namespaces import (
    SetupError,
    fork_init,
    fork_keeper,
    hide_cgroup,
    hide_keyring,
    isolate,
    private_mounts,
)
from envbuild.core.userns.own_users import NO_USERS, OwnUsers
from envbuild.core.userns.profiles import BUILD, RUN
from envbuild.core.userns.seccomp import make_program
from envbuild.core.userns.starter import make_starter, read_report, start

OPEN_FILES = 65536
MAX_ANSWER = 1 << 20  # bytes
NAMED = 20  # processes in a message: a step may leave as many as the machine has room for
NO_FILTER = "this kernel has no seccomp: system calls of the sandbox are not filtered"


@dataclass(frozen=True)
class Protection:
    """The protections that were in force in a sandbox beside its other namespaces: the filter of system calls
    (`seccomp`), a session keyring and a cgroup namespace of its own; `users`: no process in it is one of a
    user of the machine, who could enter it."""

    seccomp: bool
    keyring: bool
    cgroup: bool
    users: bool


@dataclass(frozen=True)
class Outcome:
    """`step`: number of the last command, from 0; `code`: its exit status (128 + signal). `notes`: messages of the
    sandbox for the user. `protection`: None where there was no sandbox."""

    step: int = 0
    code: int = 0
    notes: tuple[str, ...] = field(default=())
    protection: Protection | None = None


def warn_without_filter(reporter: Reporter) -> None:
    """Warn if the kernel cannot filter the system calls of a sandbox."""
    if not libc.has_filters():
        reporter.warn(NO_FILTER)


def run_in_sandbox(
    box: RootSpec, commands: Sequence[Sequence[str]], env: Mapping[str, str], *, interactive: bool = False
) -> Outcome:
    """Run `commands` (argument lists) until one fails, with this process's stdout and stderr. Raises SetupError,
    OSError.

    This process must be root (`id_maps.become_root`) and must not have threads yet.
    """
    if box.apt:
        env = {**env, "APT_CONFIG": f"{INPUTS}/apt.conf"}
    program = make_program(BUILD if box.build else RUN) if libc.has_filters() else b""
    read, write = os.pipe()
    keeper = fork_keeper()
    if keeper == 0:
        os.close(read)
        _run_keeper(write, box, commands, env, interactive, program)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read(MAX_ANSWER)
    os.waitpid(keeper, 0)
    if not answer:
        raise SetupError("init", "the unit's init was killed (out of memory?)")
    step, code, notes, protection = decode(answer, "the init of a unit")
    return Outcome(step, code, tuple(notes), Protection(**protection))


def _run_keeper(
    write: int,
    box: RootSpec,
    commands: Sequence[Sequence[str]],
    env: Mapping[str, str],
    interactive: bool,
    program: bytes,
) -> None:
    """Make the namespaces, start init, wait for it; never returns.

    A process of its own: after unshare(CLONE_NEWPID) a process cannot start threads, which compressing the layer needs.
    """
    try:
        os.closerange(3, write)  # among them the pipe on which this process's parent answers
        os.closerange(write + 1, 1 << 20)
        isolate(box.network)
        users = None if has_own_namespace() else OwnUsers()
        protection = Protection(bool(program), hide_keyring(), hide_cgroup(), not users)
        init = fork_init()
        if init == 0:
            _run_init(write, box, commands, env, interactive, program, protection, users)
        if users:
            users.map(init)
        os.waitpid(init, 0)
    except (SetupError, OSError) as error:
        os.write(write, encode_error(error))
    finally:
        os._exit(0)


def _run_init(
    write: int,
    box: RootSpec,
    commands: Sequence[Sequence[str]],
    env: Mapping[str, str],
    interactive: bool,
    program: bytes,
    protection: Protection,
    users: OwnUsers | None,
) -> None:
    """Run as pid 1: mount, run the commands, reap; never returns."""
    answer = encode_error(SetupError("init", "unknown"))
    notes: list[str] = []
    try:
        private_mounts()
        with mount_root(box, notes) as tree, no_services(tree) if box.build else contextlib.nullcontext():
            forbid_imports()  # the root is that of the image from here on
            libc.pivot_root(tree.root)
            if not box.one_id:
                drop_groups()
            if users:
                protection = replace(protection, users=users.enter(network=box.network))
                notes += [] if protection.users else [NO_USERS]
            starter = make_starter()
            _confine(program, network=box.network)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Python would raise in pid 1, which every step may send it
            for number, command in enumerate(commands):
                code = _run(starter, command, env, interactive)
                left = _kill_rest()
                notes += left if box.build else []  # squashfuse is among them
                answer = encode((number, code, notes, asdict(protection)))
                if code:
                    break
    except (SetupError, EnvbuildError, OSError) as error:
        answer = encode_error(error)
    except BaseException as error:
        answer = encode_error(SetupError("init", describe_crash(error)))
    finally:
        sys.stdout.flush()
        os.write(write, answer)
        os._exit(0)


def _confine(program: bytes, *, network: bool) -> None:
    """Give up what only mounting needs, for good: what init does with files of the root, it does with the rights of a
    step. It remains closed to steps: a debugger would have its descriptors (ptrace(2), "access mode checking")."""
    if program:
        libc.set_filter(program)  # before the capability goes that allows it without no_new_privs
    # With the machine's network, packet and raw sockets of root would read and forge what its other programs send.
    libc.drop_capabilities(*((libc.CAP_NET_RAW,) if network else ()))
    libc.prctl(libc.PR_SET_DUMPABLE, 0)


def _run(starter: int, command: Sequence[str], env: Mapping[str, str], interactive: bool) -> int:
    """Run one command to its end, reaping every other process that ends; returns its exit status."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _prepare_step(interactive)
            start(starter, write, command, env)
        except OSError as error:
            os._exit(_report_start(command[0], error.errno or 0))
        except BaseException as error:
            os.write(2, f"envbuild: {describe_crash(error)}\n".encode())
        finally:
            os._exit(126)
    os.close(write)
    with os.fdopen(read, "rb") as report:
        while True:
            pid, status = os.wait()
            if os.WIFSTOPPED(status):  # by PTRACE_TRACEME, which makes its parent the debugger
                with contextlib.suppress(OSError):
                    libc.detach(pid, os.WSTOPSIG(status))
            elif pid == child:
                break
        if reason := read_report(report.fileno()):
            return _report_start(command[0], reason)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _report_start(name: str, error: int) -> int:
    """Report why a program was not started (an errno); returns the exit status that shells have for that."""
    os.write(2, f"envbuild: {name}: {os.strerror(error)}\n".encode())
    return 127 if error == errno.ENOENT else 126


def _prepare_step(interactive: bool) -> None:
    """Prepare a forked init to become a step: its own session, default signals, limits; no input, or a terminal that it
    controls, if it has one."""
    os.setsid()
    terminals = [number for number in range(3) if os.isatty(number)] if interactive else []
    if terminals:
        fcntl.ioctl(terminals[0], termios.TIOCSCTTY, 0)
    if not interactive:
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


def _kill_rest() -> list[str]:
    """Kill what a step left running; returns a line that names it."""
    names = []
    entries: list[str] = []
    with contextlib.suppress(OSError):  # where a step lowered the limits of this process (prlimit(2)), nothing is named
        entries = sorted(path.name for path in Path("/proc").iterdir())
    for entry in entries:
        if entry.isdecimal() and entry != "1":
            with contextlib.suppress(OSError):
                name, _, rest = Path(f"/proc/{entry}/stat").read_bytes().partition(b"(")[2].rpartition(b")")
                if not rest.startswith(b" Z"):  # proc_pid_stat(5): the state; a name has any bytes
                    names.append(printable(name.decode("utf-8", "backslashreplace")))
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    return [f"stopped what the step left running: {human_list(names, NAMED)}"] if names else []
