"""``sinfo -N -h -o "%N|%P|%T|%G|%E"``: one line for each node and partition."""

from __future__ import annotations

from typing import NamedTuple

COMMAND = ("sinfo", "-N", "-h", "-o", "%N|%P|%T|%G|%E")
USABLE = ("idle", "mixed", "allocated", "completing", "planned", "reserved")


class NodeRow(NamedTuple):
    """A node in a partition; `reason` is the administrator's text of a node that is drained."""

    node: str
    partition: str
    state: str
    gres: str
    reason: str

    @property
    def usable(self) -> bool:
        return self.state in USABLE


def parse_sinfo(text: str) -> list[NodeRow]:
    """Return the rows; a truncated line is left out. The marks of states (idle*, down~) are removed, but ``*`` of a
    node that does not respond makes it unusable."""
    rows = []
    for line in text.splitlines():
        cells = line.split("|", 4)
        if len(cells) == 5:
            state = cells[2].lower()
            plain = "not responding" if state.endswith("*") else state.rstrip("~#!%$@^-")
            rows.append(NodeRow(cells[0].strip(), cells[1].strip("* "), plain, cells[3], cells[4]))
    return rows
