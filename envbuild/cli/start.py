"""The entry point: conditions that must hold before the first import that takes time.

Ctrl-C while modules are imported ends the process as it ends any program, without a traceback; `envbuild.core.signals`
takes the signals once a command runs.

Specs, locks and recipes are UTF-8, and so are names inside images, in any locale of a login (`LANG=de_DE`,
`LC_ALL=C`). Python reads, names and prints in the locale's encoding, except in its UTF-8 mode (PEP 540). A process that
was started without it executes itself again in that mode: the same process, at the cost of one interpreter start.
"""

from __future__ import annotations

import os
import signal
import sys

from envbuild.core.interpreter import MODE


def main() -> None:
    """Run the command `envbuild`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # A caller that ignores it leaves that to its programs (execve(2)): the ends of children could not be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if not in_utf8():
        os.execv(sys.executable, [sys.executable, *MODE, *sys.orig_argv[1:]])
    from envbuild.cli.main import main as command

    command()


def in_utf8() -> bool:
    """Return whether texts are UTF-8 here, or that cannot be changed."""
    return sys.getfilesystemencoding() == "utf-8" or not sys.executable or not sys.orig_argv
