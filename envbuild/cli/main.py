"""The process around a command: streams, signals, and errors without a traceback."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import NoReturn

from envbuild.cli.app import COMMANDS, create_app, named_commands
from envbuild.cli.json_answer import (
    INTERNAL,
    encode_error,
    encode_failure,
    note_request,
    print_failure,
    print_interruption,
)
from envbuild.core import signals
from envbuild.core.errors import FREE_SOME, EngineError, EnvbuildError, Finding, SpecError
from envbuild.core.text import printable_lines, printable_message, without_logins


def main() -> None:
    """Run the command, after `envbuild.cli.start`.

    A user's mistake is reported without a traceback. The exit code is the one of its kind, or 128 + the number of the
    signal that ended the command.
    """
    streams()
    with signals.leftover(print_interruption):
        run_command()


def run_command() -> None:
    """Run the command, and end the process if it fails."""
    try:
        with signals.listening():
            create_app(named_commands(sys.argv[1:]))()
    except EnvbuildError as error:
        fail(error)
    except SystemExit as end:
        print_usage_error(end.__context__)
        raise
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        hint = advise(error)
        where = str(error.filename2 or error.filename or "")  # of two, the first is a temporary file
        where = where if len(where) <= LONGEST else f"{where[:LONGEST]}…"
        fail(EngineError(str(error.strerror or error), hint=hint, where=where))
    except Exception as error:  # a fault of envbuild: Python prints the traceback
        if is_thread_limit(error):
            fail(EngineError("a thread cannot be started: the limit of memory or processes is reached", hint=THREADS))
        finding = Finding(f"{type(error).__name__}: {error}", hint="report the traceback on stderr")
        print_failure(encode_failure(INTERNAL, 1, [finding]))
        raise


def advise(error: OSError) -> str:
    """Return the hint for an error of the system."""
    if error.errno == errno.ENOENT and is_removed():
        return "the current folder was removed: change into another one"
    advice = ADVICE | ({} if error.filename else {errno.ENOSPC: FREE_ANY})  # a nameless one may be stdout's
    return advice.get(error.errno or 0, REPORT)


def is_removed() -> bool:
    """Return whether the current folder was removed; its status can still be read (getcwd(3))."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def is_thread_limit(error: Exception) -> bool:
    """Return whether Python could not start a thread: it has no class of its own for that."""
    return type(error) is RuntimeError and error.args == ("can't start new thread",)


def fail(error: EnvbuildError) -> NoReturn:
    """Report an error as text on stderr, with ``--json`` also as an object on stdout, and exit with its code."""
    for finding in error.findings:
        where = without_logins(finding.where)
        finding = Finding(printable_message(finding.message), where, printable_message(finding.hint))
        print(printable_lines(f"error: {finding}"), file=sys.stderr)
    print_failure(encode_error(error))
    sys.exit(error.exit_code)


def print_usage_error(error: BaseException | None) -> None:
    """Print the answer for a command line that typer refused, if it has ``--json``: typer wrote the text to stderr."""
    message = getattr(error, "format_message", None)  # of a refused command line alone
    words = sys.argv[1:]
    if message is None or "--json" not in words[: words.index("--") if "--" in words else None]:
        return
    note_request(True)
    command = next((f"{word} " for word in words if word in COMMANDS), "")
    print_failure(encode_error(SpecError(message(), hint=f"envbuild {command}--help")))


def streams() -> None:
    """Open the null device for each of stdin, stdout and stderr that is closed (``2>&-``).

    Otherwise the next file that is opened gets its number, and messages are written into that file. A character that
    the encoding of an output (``PYTHONIOENCODING``) lacks is printed as ``?``.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free: this one
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(errors="replace")


REPORT = "if the store and the project can be read and written, this is a fault of envbuild: please report it"
THREADS = "raise the limits: ulimit -v unlimited; ulimit -u unlimited"
FREE_ANY = f"free some space where the output goes; in the store: {FREE_SOME}"
IN_THE_WAY = "another kind of file has that name: move it away, then run the command again"
LONGEST = 300  # characters of a path in a message
ADVICE = {
    errno.ENAMETOOLONG: "use a shorter name, or a folder with a shorter path",
    errno.EISDIR: IN_THE_WAY,
    errno.ENOTDIR: IN_THE_WAY,
    errno.ELOOP: IN_THE_WAY,
    errno.ENXIO: IN_THE_WAY,  # a socket
    errno.ENOSPC: FREE_SOME,
    errno.EAGAIN: THREADS,
    errno.EFBIG: "raise the limit of the size of files: ulimit -f unlimited; or choose another file system",
    errno.EACCES: "check the owner and mode of that file and of the folders above it",
    errno.EPERM: "check the owner and mode of that file and of the folders above it",
    errno.EROFS: "that file system is read-only: set ENVBUILD_STORE, or work in a copy of the project",
}
