"""Start: what has to hold before the first import that takes time.

Ctrl-C while modules are imported ends the process as it ends any program, without a traceback; `envbuild.core.signals`
takes the signals once a command runs.

Specs, locks and recipes are UTF-8, and so are names inside images, whatever the locale of a login is (`LANG=de_DE`,
`LC_ALL=C`). Python reads, names and prints in the locale's encoding; in its UTF-8 mode (PEP 540) it does not, so that
a process that was started in another one starts itself anew in that: the same process, at the cost of one interpreter.
"""

from __future__ import annotations

import os
import signal
import sys

from envbuild.core.interpreter import MODE


def main() -> None:
    """The command `envbuild`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if not in_utf8():
        os.execv(sys.executable, [sys.executable, *MODE, *sys.orig_argv[1:]])
    from envbuild.cli.app import main as command

    command()


def in_utf8() -> bool:
    """Whether texts are UTF-8 here, or nothing can be done about it."""
    return sys.getfilesystemencoding() == "utf-8" or not sys.executable or not sys.orig_argv
