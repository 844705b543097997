"""Standard streams of a command in an image: it never has a descriptor of the caller's files, devices or terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import shlex
import signal
import socket
import stat
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest

from envbuild.core.store.store import Store
from tests.support import tiny_root as kit
from tests.support.programs import importing

pytestmark = pytest.mark.engine

# Arguments: the store, the command, trees.
RUN = """
import sys
from pathlib import Path
from envbuild.build.engines.embedded.run_command import run_in_root
from envbuild.cli.main import streams
from envbuild.core import signals
from envbuild.core.store.store import Store
streams()
with signals.listening():
    code = run_in_root([Path(tree) for tree in sys.argv[3:]], ["/bin/sh", "-c", sys.argv[2]], env={},
                          store=Store.open(Path(sys.argv[1])))
sys.exit(code)
"""
CHANGE = "for fd in 0 1 2; do chmod 4777 /proc/self/fd/$fd; chown 1 /proc/self/fd/$fd; done; : > /proc/self/fd/0; "


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    store = Store.open(tmp_path_factory.mktemp("store"))
    built = kit.build(store, kit.unit("a", "true"))
    trees = [str(store.layer_tree(layer.diff_id)) for layer in built.layers]
    return [sys.executable, "-c", RUN, str(store.root), "COMMAND", *trees]


def start(command: list[str], text: str, **streams: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*command[:4], text, *command[5:]], env=importing(), **streams)  # type: ignore[call-overload, no-any-return]


def test_files_of_the_caller_remain_as_they_are(command: list[str], tmp_path: Path) -> None:
    given, output, errors = (tmp_path / name for name in ("in", "out", "err"))
    given.write_text("input\n")
    before = []
    for path in (given, output, errors):
        path.touch(0o600)
        before.append((path.stat().st_mode, path.stat().st_uid))
    with given.open() as stdin, output.open("w") as stdout, errors.open("w") as stderr:
        text = f"cat; echo output; echo error >&2; {CHANGE}"
        assert start(command, text, stdin=stdin, stdout=stdout, stderr=stderr).wait() == 0
    assert [(path.stat().st_mode, path.stat().st_uid) for path in (given, output, errors)] == before
    assert given.read_text() == "input\n"
    assert output.read_text() == "input\noutput\n" and errors.read_text().startswith("error\n")


def test_the_null_device_remains_as_it_is(command: list[str], tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("needs root, who may make device nodes")
    null = tmp_path / "null"  # never the machine's own
    os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    with null.open("r+b", buffering=0) as file:
        assert start(command, CHANGE, stdin=file, stdout=file, stderr=file).wait() == 0
    assert null.stat().st_mode == stat.S_IFCHR | (0o666 & null.stat().st_mode) and null.stat().st_uid == 0


def test_unread_input_is_left_for_the_next(command: list[str], tmp_path: Path) -> None:
    """`while read line; do envbuild run …; done < file` sees each line."""
    given = tmp_path / "in"
    given.write_text("".join(f"{number}\n" for number in range(50_000)))
    with given.open("rb", buffering=0) as file:
        assert start(command, "true", stdin=file, stdout=subprocess.PIPE).wait() == 0
        assert file.tell() == 0
        assert start(command, "head -c 4 > /dev/null", stdin=file).wait() == 0
        assert file.read(6) == b"2\n3\n4\n"
        file.seek(-4, os.SEEK_END)
        assert start(command, "true", stdin=file).wait() == 0
        assert file.read() == b"999\n"


def test_large_input_and_output(command: list[str], tmp_path: Path) -> None:
    given, output = tmp_path / "in", tmp_path / "out"
    given.write_bytes(os.urandom(1 << 20) * 4)
    with given.open() as stdin, output.open("w") as stdout:
        assert start(command, "cat; echo end >&2", stdin=stdin, stdout=stdout, stderr=stdout).wait() == 0
    assert output.read_bytes() == given.read_bytes() + b"end\n"


def test_closed_streams(command: list[str]) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", '"$@" <&- 2>&-', "sh", *command[:4], "cat; echo one; echo two >&2", *command[5:]],
        env=importing(),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"one\n", b"")


def test_full_device(command: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        process = start(
            command, "while echo line; do :; done", stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE
        )
        assert b"No space left" in process.communicate(timeout=60)[1]
    assert process.returncode


class Terminal:
    """A terminal that a command is started on, as its controlling terminal."""

    def __init__(self, command: list[str], text: str) -> None:
        self.pid, self.main = pty.fork()
        if self.pid == 0:
            os.execve(command[0], [*command[:4], text, *command[5:]], importing())
        self.text = b""

    def read(self, until: bytes) -> None:
        end = time.monotonic() + 60
        while until not in self.text and select.select([self.main], [], [], max(0.0, end - time.monotonic()))[0]:
            try:
                self.text += os.read(self.main, 4096)
            except OSError:
                break
        assert until in self.text, self.text

    def end(self) -> tuple[int, list[object]]:
        """Return the exit code and the settings of the terminal after the command has ended."""
        try:
            while os.read(self.main, 4096):
                pass
        except OSError:
            pass
        settings = termios.tcgetattr(self.main)
        os.close(self.main)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]), settings


def test_a_terminal_of_its_own(command: list[str]) -> None:
    """Its size and Ctrl-C reach the command; the caller's terminal has the mode and the settings it had before."""
    loop = "trap 'echo caught; stty size; exit 9' INT; echo ready; while :; do sleep 0.1; done"
    terminal = Terminal(command, CHANGE + loop)
    name = Path(f"/proc/{terminal.pid}/fd/0").readlink()
    before = name.stat()
    settings = termios.tcgetattr(terminal.main)
    termios.tcsetwinsize(terminal.main, (33, 99))
    terminal.read(b"ready")
    os.write(terminal.main, b"\x03")
    terminal.read(b"33 99")
    assert b"caught" in terminal.text
    after = name.stat()
    assert (after.st_mode, after.st_uid) == (before.st_mode, before.st_uid)
    assert terminal.end() == (9, settings)


def test_job_control_of_a_shell(command: list[str]) -> None:
    terminal = Terminal(command, "exec /bin/sh -i")
    terminal.read(b"# ")
    os.write(terminal.main, b"sh -c 'echo begin-$((40+2)); exec sleep 100'\n")
    terminal.read(b"begin-42")
    os.write(terminal.main, b"\x03")
    os.write(terminal.main, b"echo still-$((40+2)); exit 3\n")
    terminal.read(b"still-42")
    assert terminal.end()[0] == 3


def test_much_that_is_typed_at_once_does_not_stop_the_terminal(command: list[str]) -> None:
    """The program's terminal may take a few bytes alone, while the program waits until its output is read."""
    terminal = Terminal(command, "echo ready; cat")
    terminal.read(b"ready")
    line = b"x" * 70 + b"\n"
    text, lines = line * 14_000 + b"the end\n", b""
    os.set_blocking(terminal.main, False)
    end = time.monotonic() + 60
    while b"the end" not in lines[-100:] and time.monotonic() < end:
        writing = [terminal.main] if text else []
        ready = select.select([terminal.main], writing, [], 1)
        if ready[0]:
            lines += os.read(terminal.main, 1 << 16)
        if ready[1]:
            with contextlib.suppress(BlockingIOError):
                text = text[os.write(terminal.main, text[:1024]) :]
    os.kill(terminal.pid, signal.SIGKILL)
    os.set_blocking(terminal.main, True)
    terminal.end()
    assert (len(text), lines.replace(b"\r", b"").count(line) >= 14_000) == (0, True)


def test_a_program_types_no_commands_into_the_pipe_of_the_callers_shell(command: list[str], tmp_path: Path) -> None:
    """``cat script | bash``: the shell reads its commands from the pipe that is the program's input, too."""
    inner = "(echo echo typed > /proc/self/fd/0) & sleep 1"  # it waits where its input has not been read
    words = " ".join(map(shlex.quote, [*command[:4], inner, *command[5:]]))
    script = f"echo begin\n{words}\necho end\n"
    done = subprocess.run(["/bin/bash"], input=script, env=importing(), capture_output=True, text=True, check=False)
    assert done.stdout == "begin\nend\n", done


def test_input_of_a_pipe_that_is_not_read_is_left_for_the_shell(command: list[str]) -> None:
    """A command in a script that comes through a pipe takes what it reads, and no more."""
    words = " ".join(map(shlex.quote, [*command[:4], "head -c 6", *command[5:]]))
    script = f"echo begin\n{words}\nfirst\necho end\n" + "# a line\n" * 20_000 + "echo last\n"
    done = subprocess.run(["/bin/bash"], input=script, env=importing(), capture_output=True, text=True, check=False)
    assert done.stdout == "begin\nfirst\nend\nlast\n", done


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_large_input_and_output_of_pipes_and_sockets(command: list[str], kind: str) -> None:
    ours, theirs = socket.socketpair()
    data = os.urandom(1 << 20) * 2
    stdin = subprocess.PIPE if kind == "pipe" else theirs
    process = start(command, "cat; echo end >&2", stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    theirs.close()
    if kind == "socket":

        def send() -> None:
            ours.sendall(data)
            ours.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        output, errors = process.communicate(timeout=60)
        sender.join()
    else:
        output, errors = process.communicate(data, timeout=60)
    ours.close()
    assert (output == data, errors, process.returncode) == (True, b"end\n", 0)


def test_a_program_does_not_read_what_the_caller_wrote_into_its_pipe(command: list[str]) -> None:
    read, write = os.pipe()
    os.write(write, b"of the caller\n")
    text = "cat /proc/self/fd/1 > /tmp/x & sleep 1; kill $!; cat /tmp/x >&2"
    process = start(command, text, stdin=subprocess.DEVNULL, stdout=write, stderr=subprocess.PIPE)
    assert b"of the caller" not in process.communicate(timeout=60)[1]
    os.close(write)
    with os.fdopen(read, "rb") as file:
        assert file.read() == b"of the caller\n"


def test_a_program_whose_output_is_not_read_any_more_ends(command: list[str]) -> None:
    process = start(command, "while echo line; do :; done", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE)  # fmt: skip
    assert process.stdout is not None
    process.stdout.read(100)
    process.stdout.close()
    assert process.wait(timeout=60) == 141  # of SIGPIPE, as without envbuild
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()


def test_input_is_not_set_back_by_what_a_program_writes_into_it(command: list[str], tmp_path: Path) -> None:
    """The offset of the caller's file was set back before the place where it was, into lines that were executed."""
    given = tmp_path / "in"
    given.write_bytes(b"x" * 100 + b"y" * 100)
    with given.open("rb", buffering=0) as file:
        file.seek(100)
        assert start(command, "head -c 3000 /dev/zero > /proc/self/fd/0", stdin=file).wait() == 0
        assert file.tell() == 100
