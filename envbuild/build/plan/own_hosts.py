"""A step in which /etc/hosts is not there although BuildKit mounts its own: a package such as netbase writes the file
only where there is none.

What is mounted over a link lands on its target. So the root of such a step has a link, which the step's command removes
first and restores at the end, unless the step wrote a file. The time of /etc is then that which the step left.
"""

from __future__ import annotations

LINK, TARGET = "etc/hosts", "../run/hosts"
NOTE = "/run/etc-time"  # a file with the time of /etc; /run is not part of a layer
NEXT = " && \\\n    "


def without_hosts(command: str) -> str:
    """Return the command of a step in a root that has the link LINK to TARGET."""
    return NEXT.join(
        (
            f"touch -r /etc {NOTE}",
            f'if [ "$(readlink /{LINK})" = {TARGET} ]; then rm /{LINK}; fi',
            f"touch -r {NOTE} /etc",
            f"({command})",
            f"touch -r /etc {NOTE}",
            f"if [ ! -e /{LINK} ] && [ ! -h /{LINK} ]; then ln -s {TARGET} /{LINK}; fi",
            f"touch -r {NOTE} /etc",
        )
    )
