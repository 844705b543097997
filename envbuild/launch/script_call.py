"""The call of a shell with a script that other users cannot read.

The arguments of a program are visible to all users of a machine (proc_pid_cmdline(5)), for as long as a job runs; its
environment to its own user alone (proc_pid_environ(5)). A script exports the site's variables, which may be tokens.
"""

from __future__ import annotations

import os

NAME = "ENVBUILD_SCRIPT"


def script_call(text: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the command that runs the shell script `text` with the caller's input, and its environment."""
    # Not by a variable of the shell: the user may export one of that name.
    command = ("sh", "-c", f'eval "unset {NAME}\n${NAME}"')
    return command, {**os.environ, NAME: text}
