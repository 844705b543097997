"""A user namespace for the sandbox of root, in which users have the numbers of the machine.

Files get the owners that they would have without it. But a process there that takes the number of a user of the machine
is not that user's: without the namespace, this user could open /proc/PID/root, and give the process a folder of the
machine through a socket in it, by which it leaves its root (ptrace(2), "Ptrace access mode checking";
user_namespaces(7)). Other users have subordinate ids in their sandbox, or their own one alone.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from envbuild.core.userns import libc
from envbuild.core.userns.namespaces import SetupError, loopback_up

NO_USERS = "this kernel has no user namespace for root: a user of the machine can reach a process with the same number"


def same_numbers(uid_map: str) -> str:
    """Return the map of a namespace whose ids have the numbers that they have here (user_namespaces(7))."""
    rows = [line.split() for line in uid_map.splitlines()]
    return "".join(f"{first} {first} {count}\n" for first, _, count in rows)


class OwnUsers:
    """The way of an init and of its parent, which is outside of the new namespace, to map its ids: only the parent may
    (user_namespaces(7), "Defining user and group ID mappings"). Make one before the fork."""

    def __init__(self) -> None:
        self.asked, self.mapped = os.pipe(), os.pipe()

    def map(self, init: int) -> None:
        """Map the ids of the process `init` when it is in its namespace; return when it is done, or does without.

        Raises SetupError; `init`, which would report that too, has ended then."""
        os.close(self.asked[1])
        os.close(self.mapped[0])
        if os.read(self.asked[0], 1):
            try:
                for name in ("uid_map", "gid_map"):
                    Path("/proc", str(init), name).write_text(same_numbers(Path("/proc/self", name).read_text()))
            except OSError as error:
                os.kill(init, signal.SIGKILL)
                os.waitpid(init, 0)
                raise SetupError.of("map ids", error, "the ids of the machine") from error
            os.write(self.mapped[1], b"x")
        os.close(self.asked[0])
        os.close(self.mapped[1])

    def enter(self, *, network: bool) -> bool:
        """Enter the namespace, once everything is mounted, with a net namespace that belongs to it unless `network`.

        Returns False where the kernel or the machine's limit does not allow it. Raises SetupError.
        """
        os.close(self.asked[0])
        os.close(self.mapped[1])
        try:
            libc.unshare(libc.CLONE_NEWUSER | (0 if network else libc.CLONE_NEWNET))
        except OSError:
            return False
        else:
            libc.set_parent_death_signal(signal.SIGKILL)  # the kernel forgets it when credentials change
            os.write(self.asked[1], b"x")
            if not os.read(self.mapped[0], 1):
                raise SetupError("map ids", "the ids of the machine")
            if not network:
                loopback_up()
            return True
        finally:
            os.close(self.asked[1])
            os.close(self.mapped[0])
