"""Shell commands on many hosts, for DeepSpeed's launcher."""

from dataclasses import dataclass
from typing import ClassVar

from envbuild.sdk import Check, Recipe, RecipeEnv, Runtime


@dataclass(frozen=True, kw_only=True)
class Pdsh(Recipe):
    """pdsh and the client of ssh from the distribution; pdsh uses ssh to reach other hosts.

    The image has no ssh server, unless ``debian-packages`` names openssh-server, no key and no password. To start
    workers, mount keys into the container and provide a server on the other hosts.
    """

    package: ClassVar[str] = "pdsh"

    def runtime(self, env: RecipeEnv) -> Runtime:
        # Debian's default is rsh. DeepSpeed ends its processes on the other hosts with pkill
        return Runtime(debian=("openssh-client", "pdsh", "procps"), env={"PDSH_RCMD_TYPE": "ssh"})

    def verify(self, env: RecipeEnv) -> list[Check]:
        requested = getattr(env.recipes.get("debian-packages"), "packages", ())
        no_server = "" if "openssh-server" in requested else "! test -e /usr/sbin/sshd && "
        return [
            Check("pdsh: uses ssh", "pdsh -q -w nobody", r"(?m)^Rcmd type\s+ssh$"),
            Check("pdsh: pkill ends processes by their command line", "pkill --help", "--full"),
            Check(
                f"pdsh: no {'ssh server and no ' if no_server else ''}password in the image",
                # field 2 of an account without a usable password begins with * or !
                f"{no_server}! grep -E '^[^:]+:[^*!]' /etc/shadow && echo none",
                "^none$",
            ),
        ]
