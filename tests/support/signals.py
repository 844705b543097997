"""Programs that receive signals."""

from __future__ import annotations

import signal


def reset_signals() -> None:
    """Reset the signals that end a program, for `preexec_fn`. The test run may ignore some (nohup, a job in
    the background of a script), and a program inherits that."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
