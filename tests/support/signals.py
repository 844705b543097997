"""Programs that are told to stop."""

from __future__ import annotations

import signal


def heeding() -> None:
    """For `preexec_fn`: the signals that end a program end it. Whoever runs the tests may ignore some (nohup, a job in
    the background of a script), and a program inherits that."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
