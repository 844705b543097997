"""The file of ``all_reduce_perf -J FILE`` (nccl-tests since 2.17.3): versions 1 to 3, written by rank 0 alone.

Written from NVIDIA/nccl-tests v2.17.3 to v2.19.6, src/util.cu. Booleans are texts. ``env`` is the whole environment of
rank 0, and is not returned.
"""

from __future__ import annotations

import json
from typing import Any

from .nccl_tests import Half, NcclRun, Rank, Row

VERSIONS = (1, 2, 3)


def parse_nccl_json(text: str) -> NcclRun | None:
    """Return the run; None for a file that is truncated, of another version, or not of a finished run."""
    try:
        data = json.loads(text)
        if data["version"] not in VERSIONS or not data["end_time"] or data["errors"]:
            return None
        bounds = data["out_of_bounds"]
        return NcclRun(
            rows=tuple(json_row(item) for item in data["results"]),
            ranks=tuple(
                Rank(item["rank"], item["hostname"], item["device"], item["device_hex"], item["device_info"])
                for item in data["config"]["devices"]
            ),
            headers=1,
            out_of_bounds=int(bounds["count"]) if bounds["okay"] == "true" else max(int(bounds["count"]), 1),
            average=float(data["average_bus_bandwidth"]["bandwidth"]),
            largest=int(data["config"]["maximum_bytes"]),
            library=str(data["nccl_version"]),
            version="",
        )
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def json_row(item: Any) -> Row:
    """Return one size. Raises KeyError, TypeError and ValueError."""
    return Row(int(item["size"]), json_half(item["out_of_place"]), json_half(item["in_place"]))


def json_half(item: Any) -> Half:
    """Return one half of a row; ``nwrong`` is "nan" where nothing was checked."""
    wrong = float(item["nwrong"])
    return Half(float(item["time"]), float(item["alg_bw"]), float(item["bus_bw"]), None if wrong != wrong else wrong)
