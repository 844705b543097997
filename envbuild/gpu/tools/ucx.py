"""UCX: the transports that ``ucx_info -d`` lists, and those that a job's log states (``UCX_LOG_LEVEL=info``).

Formats: openucx/ucx 1.13 to 1.20, src/tools/info and src/ucp/core. ``ucx_info -d`` has no closing line, and a device of
UCX_NET_DEVICES that is missing is left out in silence: only names that are listed prove something.
"""

from __future__ import annotations

import re

TRANSPORT = re.compile(r"#\s+Transport: (\S+)")
DEVICE = re.compile(r"#\s+Device: (\S+)")
USED = re.compile(r"(?:ep_cfg\[\d+\]:|cfg#\d+) (.*)$")  # the second since 1.18
LANE = re.compile(r"([\w]+)/([\w:.-]+)")
TABLE_ROW = re.compile(r"\|\s*[\d.]+(?:\.\.|\s)[\w.]*\s*\|[^|]*\|\s*([^|]+?)\s*\|\s*$")


def parse_ucx_info(text: str) -> tuple[tuple[str, str], ...]:
    """Return the transports of ``ucx_info -d``, each with its device."""
    found: list[tuple[str, str]] = []
    transport = ""
    for line in text.splitlines():
        if start := TRANSPORT.match(line):
            transport = start[1]
        elif (device := DEVICE.match(line)) and transport:
            found.append((transport, device[1]))
            transport = ""
    return tuple(found)


def used_lanes(text: str) -> tuple[str, ...]:
    """Return the lanes that a log states, sorted: ``rc_mlx5/mlx5_0:1``; of ep_cfg lines and of protocol tables."""
    lanes: set[str] = set()
    for line in text.splitlines():
        found = USED.search(line) or TABLE_ROW.search(line)
        if found:
            lanes.update("/".join(match) for match in LANE.findall(found[1]))
    return tuple(sorted(lanes))
