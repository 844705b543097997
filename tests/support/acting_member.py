"""A second member of a store's group, who acts between two system calls of the first one's command."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.as_user import run_as

CALLS = ("open", "os.chmod", "os.chown", "os.rename", "os.listdir", "os.remove")  # audit events before a system call
DONE = b"1"


def replace_by_link(path: Path, target: Path) -> None:
    with suppress(FileNotFoundError):
        path.rename(path.with_name("moved"))
    path.symlink_to(target)


def run_against(
    one: int,
    two: int,
    group: int,
    command: Callable[[], object],
    *,
    at: Callable[[str], bool],
    target: Path,
    replaced: Path | None = None,
) -> tuple[bool, object]:
    """Run `command` as the user `one`, while the user `two` puts a link to `target` in the place of the first existing
    path for which `at` is true, or of `replaced`, just before the system call that uses the path.

    Returns whether the link was put there, and the result of the command or its exception as text.
    """
    names, answers = os.pipe(), os.pipe()
    attacker = os.fork()
    if not attacker:
        os.close(names[1])
        _wait_and_replace(names[0], answers[1], two, group, target)
    happened: list[bytes] = []

    def act(event: str, values: Sequence[object]) -> None:
        if event not in CALLS or happened:
            return
        name = os.fsdecode(values[0]) if isinstance(values[0], str | bytes | Path) else ""
        if name and at(name) and os.path.lexists(name):
            happened.append(b"")
            os.write(names[1], os.fsencode(replaced or name))
            happened[0] = os.read(answers[0], 1)

    def run() -> tuple[bool, object]:
        sys.addaudithook(act)  # of this process alone, which ends with the command
        try:
            result = command()
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        return happened == [DONE], result

    os.close(answers[1])
    try:
        return run_as(one, one, (group,), run)
    finally:
        os.close(names[1])
        os.close(names[0])
        os.close(answers[0])
        os.waitpid(attacker, 0)


def _wait_and_replace(names: int, answers: int, user: int, group: int, target: Path) -> None:
    """Put the link in the place of the path that is read from `names`; ends this process."""
    try:
        os.setgroups((group,))
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        if name := os.read(names, 4096):
            replace_by_link(Path(os.fsdecode(name)), target)
            os.write(answers, DONE)
    finally:
        os._exit(0)
