"""Programs that envbuild starts: their streams and exit codes, and their end with envbuild, however it ends."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.paths import PACKAGE
from envbuild.core.programs import PIPE, STDOUT, TimeoutExpired, memory_file, run_program, start_program
from tests.support.processes import alive, descendants, end, with_variable

pytestmark = pytest.mark.unit

# One that ignores SIGTERM and has a session of its own, and an ordinary one.
CHILDREN = "(trap '' TERM; setsid sleep 1000 & wait) & sleep 1001 & wait"
# The same, and their parents have ended.
FAMILY = (
    "(trap '' TERM; setsid sleep 1000 & exec sleep 0) & (sleep 1001 & exec sleep 0) & echo > $READY; wait; sleep 1002"
)
KILLED = f"""
import os, sys
from envbuild.core import signals
from envbuild.core.programs import run_program, start_program
with signals.listening():
    start_program(["sleep", "1003"])
    run_program(["sh", "-c", {FAMILY!r}])
"""
# module → why it starts processes itself
OTHERS = {
    "core/guard.py": "it is the one that starts them",
    "core/guard_process.py": "it starts the guard",
    "core/programs.py": "programs of the user, which may stay",
    "core/userns/process.py": "envbuild's own functions; the kernel ends them with their parent",
    "core/userns/starter.py": "it is the process of a step",
    "core/userns/id_maps.py": "newuidmap, from outside of the namespace",
    "core/userns/namespaces.py": "processes of a namespace, which end with its parent",
    "build/engines/embedded/sandbox.py": "in the process namespace of a unit, which ends with it",
    "build/engines/embedded/mount_squashfs.py": "in the process namespace of a unit, which ends with it",
    "build/engines/embedded/confined_program.py": "the loader, which lists libraries; it ends with its parent",
    "inspector/report.py": "in the process namespace of an image, which ends with it; it has no other module",
    "cli/start.py": "it is the same process",
    "doctor/processes.py": "also a file for Python alone; each has a limit, and is ended with its children",
    "doctor/file_reader.py": "also in a file for Python alone; it ends when its pipe closes",
    "doctor/checks/user_namespaces.py": "the copy makes a few system calls, and ends",
}


def test_streams_and_exit_codes(tmp_path: Path) -> None:
    done = run_program(["sh", "-c", "cat; pwd >&2; exit 3"], content=b"in\xff", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.decode()) == (3, b"in\xff", f"{tmp_path.resolve()}\n")
    done = run_program(["sh", "-c", "echo $A; umask; kill -INT $$"], env={"A": "ä\udcff"}, umask=0o077, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "ä\ufffd\n0077\n")
    assert run_program(["sh", "-c", "cat; test -t 0"]).returncode == 1  # no input, no terminal


@pytest.mark.slow_unit
def test_the_last_line_of_stderr_is_watched_while_a_program_runs() -> None:
    seen: list[str] = []
    script = "printf 'one\\n' >&2; sleep 1; printf 'two\\nthr' >&2; sleep 1; echo ee >&2; sleep 1"
    done = run_program(["sh", "-c", script], text=True, watch=seen.append)
    assert seen == ["one", "two", "three"] and done.stderr == "one\ntwo\nthree\n"


def test_a_program_is_ended_at_a_pattern_in_its_stdout() -> None:
    script, begin = "echo one; echo 'two (28: x)'; exec sleep 1004", time.monotonic()
    done = run_program(["sh", "-c", script], text=True, ends=re.compile(rb"\((28|122): ").search)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "one\ntwo (28: x)\n")
    assert time.monotonic() - begin < 60
    assert run_program(["sh", "-c", script.replace("1004", "0.5")], ends=re.compile(rb"\(29: ").search).returncode == 0


def test_a_signal_that_envbuild_ignores_is_ignored_and_no_other_is() -> None:
    code = "import signal; print([int(signal.getsignal(n) == signal.SIG_IGN) for n in (1, 2, 3, 13, 15, 17)])"
    outer = (
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); from envbuild.core.programs import run_program;"
        f"import sys; print(run_program([sys.executable, '-c', {code!r}], text=True).stdout)"
    )
    done = subprocess.run([sys.executable, "-c", outer], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    assert done.stdout.strip() == "[1, 0, 0, 1, 0, 0]"  # Python itself ignores SIGPIPE


def test_a_program_that_is_missing_or_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run_program(["no-such-program"])
    (tmp_path / "odd").write_text("\x7fELF")
    (tmp_path / "odd").chmod(0o755)
    assert run_program([tmp_path / "odd"]).returncode == 126


def test_the_memory_of_a_program_is_limited() -> None:
    code = "print(len(bytearray(64 << 20)))"
    assert run_program([sys.executable, "-c", code]).stdout == b"67108864\n"
    limited = run_program([sys.executable, "-c", code], memory=48 << 20)
    assert limited.returncode == 1 and b"MemoryError" in limited.stderr


def test_the_files_of_a_program_are_limited(tmp_path: Path) -> None:
    limited = run_program(["dd", "if=/dev/zero", f"of={tmp_path}/f", "bs=1M", "count=8"], largest=2 << 20)
    assert limited.returncode == 1 and b"File too large" in limited.stderr
    assert (tmp_path / "f").stat().st_size == 2 << 20


def test_pipes() -> None:
    with memory_file() as errors, start_program(["cat"], stdin=PIPE, stdout=PIPE, stderr=errors.fileno()) as program:
        assert program.stdin and program.stdout
        program.stdin.write(b"one\n")
        program.stdin.flush()
        assert program.stdout.readline() == b"one\n"
        program.stdin.close()
        assert program.stdout.read() == b"" and program.wait() == 0
    with start_program(["sh", "-c", "echo one; echo two >&2"], stdout=PIPE, stderr=STDOUT) as program:
        assert program.stdout and program.stdout.read() == b"one\ntwo\n"


@pytest.mark.slow_unit
def test_a_program_ends_at_its_time_limit_with_what_it_started(tmp_path: Path) -> None:
    mark = f"MARK={tmp_path}"
    with pytest.raises(TimeoutExpired):
        run_program(["sh", "-c", CHILDREN], env={**os.environ, "MARK": str(tmp_path)}, timeout=0.3)
    assert end(lambda: with_variable(mark)) == []


@pytest.mark.slow_unit
@pytest.mark.parametrize("stream", [1, 2])
def test_a_program_that_writes_endlessly_is_ended(stream: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of git sends messages for as long as it is connected; they would fill the memory."""
    monkeypatch.setattr("envbuild.core.programs.MAX_OUTPUT", 1 << 20)
    monkeypatch.setattr("envbuild.core.programs.MAX_ERRORS", 1 << 20)
    script = f"echo begin >&2; yes >&{stream}"
    done = run_program(["sh", "-c", script], timeout=60)
    assert done.returncode < 0 and done.stderr.startswith(b"begin\n") and len(done.stderr) < 1 << 18
    assert b"1 MiB" in done.stderr[-200:]


def test_the_begin_and_the_end_of_a_long_error_are_returned() -> None:
    done = run_program(["sh", "-c", "echo begin >&2; yes | head -c 1000000 >&2; echo end >&2"])
    assert done.returncode == 0 and done.stderr.startswith(b"begin\n") and done.stderr.endswith(b"end\n")
    assert len(done.stderr) < 200_000


def test_a_context_ends_its_program() -> None:
    with start_program(["sleep", "1000"]) as program:
        pass
    assert program.returncode == -signal.SIGTERM


def test_a_program_that_ends_while_it_is_ended_takes_no_other_with_it() -> None:
    """The guard sees both at once, with the request for another program."""
    program = start_program(["sleep", "0.5"])
    until = time.monotonic() + 60
    while not (sleeping := find_below("sleep")) and time.monotonic() < until:
        time.sleep(0.02)
    guard = one_guard()
    os.kill(guard[0], signal.SIGSTOP)
    try:
        assert end(lambda: alive(sleeping)) == []
        program.kill()
        other = start_program(["sleep", "1000"])
    finally:
        os.kill(guard[0], signal.SIGCONT)
    assert program.wait(60) == 0
    with pytest.raises(TimeoutExpired):
        other.wait(0.3)
    assert alive([guard])
    other.kill()
    assert other.wait(60) == -signal.SIGTERM


def test_programs_of_many_threads(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        codes = pool.map(lambda number: run_program(["sh", "-c", f"exit {number}"]).returncode, range(40))
    assert list(codes) == list(range(40))


def test_another_guard_is_started_after_one_was_killed() -> None:
    program = start_program(["sleep", "1000"])
    guard = one_guard()
    os.kill(guard[0], signal.SIGKILL)
    assert program.wait() == -signal.SIGKILL and end(lambda: alive([guard])) == []
    assert run_program(["true"]).returncode == 0


def one_guard() -> tuple[int, int]:
    """Return the guard of this process; a program is a second one until it is executed."""
    until = time.monotonic() + 60
    while len(guards := find_below("guard.py")) != 1 and time.monotonic() < until:
        time.sleep(0.02)
    (guard,) = guards
    return guard


def find_below(word: str) -> list[tuple[int, int]]:
    """Return the processes below this one whose command line has a word."""
    found = []
    for process in descendants(os.getpid()):
        with contextlib.suppress(OSError):  # it has ended
            if word in Path(f"/proc/{process[0]}/cmdline").read_text():
                found.append(process)
    return found


@pytest.mark.slow_unit
@pytest.mark.parametrize("user", [None, 65534], ids=["own", "nobody"])
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_programs_end_with_envbuild_and_with_all_that_they_started(name: str, user: int | None) -> None:
    """Also for a user without privileges and without namespaces."""
    options: dict[str, Any] = {}
    pythons = [sys.executable]
    if user:
        options = {"user": user, "group": user, "extra_groups": []} if os.geteuid() == 0 else {}
        pythons = [python for python in (sys.executable, "/usr/bin/python3") if options and can_run(python, options)]
    if not pythons:
        pytest.skip("another user cannot run this checkout")
    with tempfile.TemporaryDirectory(prefix="envbuild-test-") as folder:
        Path(folder).chmod(0o777)  # a folder of pytest is closed to other users
        ready = Path(folder, "ready")
        process = subprocess.Popen(
            [pythons[0], "-c", KILLED],
            cwd=PACKAGE.parent,
            env={**os.environ, "READY": str(ready), "PYTHONPATH": str(PACKAGE.parent)},
            stderr=subprocess.DEVNULL,
            **options,
        )
        until = time.monotonic() + 60
        while not ready.exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        assert ready.exists()
        while len(descendants(process.pid)) < 4 and time.monotonic() < until:
            time.sleep(0.02)
        assert len(descendants(process.pid)) >= 4
        process.send_signal(signal.Signals[name])
        process.wait()
        assert end(lambda: with_variable(f"READY={ready}")) == []


def can_run(python: str, options: dict[str, Any]) -> bool:
    """Return whether a user can start this checkout with an interpreter."""
    code = "import sys; open(sys.argv[1]); sys.exit(sys.version_info < (3, 11))"
    try:
        return not subprocess.run([python, "-c", code, PACKAGE / "core/guard.py"], check=False, **options).returncode
    except OSError:
        return False


def test_programs_are_started_in_one_way() -> None:
    """A process that is started otherwise may outlive envbuild."""
    calls = {"run", "Popen", "call", "check_call", "check_output", "getoutput", "fork", "forkpty", "posix_spawn"}
    found = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        for node in (
            ast.walk(ast.parse(text)) if re.search(r"\bsubprocess\.|\bos\.(fork|exec|posix_spawn)", text) else ()
        ):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in calls:
                owner = node.func.value
                if isinstance(owner, ast.Name) and owner.id in ("subprocess", "os"):
                    found.add(str(path.relative_to(PACKAGE)))
            if (
                isinstance(node, ast.Attribute)
                and node.attr.startswith("exec")
                and getattr(node.value, "id", "") == "os"
            ):
                found.add(str(path.relative_to(PACKAGE)))
    assert found == set(OTHERS)
