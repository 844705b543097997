"""pdsh: one command on many hosts, as DeepSpeed's launcher starts its workers."""

from dataclasses import dataclass
from typing import ClassVar

from envbuild.sdk import Check, Recipe, RecipeEnv, Runtime


@dataclass(frozen=True, kw_only=True)
class Pdsh(Recipe):
    """pdsh and ssh's client from the distribution, with ssh as the way to other hosts.

    No ssh server, no key and no password: who starts workers this way mounts keys into the container and has a server
    on the other side.
    """

    package: ClassVar[str] = "pdsh"

    def runtime(self, env: RecipeEnv) -> Runtime:
        # Debian's default is rsh where ssh is not named
        return Runtime(debian=("openssh-client", "pdsh"), env={"PDSH_RCMD_TYPE": "ssh"})

    def verify(self, env: RecipeEnv) -> list[Check]:
        return [
            Check("pdsh: goes by ssh", "pdsh -q -w nobody", r"(?m)^Rcmd type\s+ssh$"),
            Check(
                "pdsh: no ssh server and no password in the image",
                # field 2 of an account without a usable password begins with * or !
                "! test -e /usr/sbin/sshd && ! grep -E '^[^:]+:[^*!]' /etc/shadow && echo none",
                "^none$",
            ),
        ]
