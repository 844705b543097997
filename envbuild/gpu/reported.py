"""The document of a rank (`envbuild.gpu.rank`) as values: the end of its program, and its logs of NCCL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..doctor.processes import Output
from .rank import LAST
from .tools.nccl_log import NcclLog

LONGEST = 2000  # characters of a line; a program of the image wrote it, and patterns try each place of a line


def rank_output(document: Mapping[str, Any]) -> Output:
    """Return the end of a rank's program."""
    return Output(
        cut_lines(str(document["text"])), cut_lines(str(document["errors"])), int(document["code"]),
        str(document["fault"]), float(document["seconds"]),
    )  # fmt: skip


def cut_lines(text: str) -> str:
    """Return the end of an output, as long as `run_rank` leaves it, without the ends of lines over `LONGEST`."""
    return "\n".join(line[:LONGEST] for line in text[-LAST:].split("\n"))


def rank_logs(document: Mapping[str, Any]) -> list[NcclLog]:
    """Return the logs of NCCL of a rank."""
    found = []
    for item in document["logs"]:
        values: dict[str, Any] = {
            key: tuple(map(as_tuple, value)) if isinstance(value, list) else value for key, value in item.items()
        }
        found.append(NcclLog(**values))
    return found


def as_tuple(value: Any) -> Any:
    """Return a list of JSON as a tuple."""
    return tuple(value) if isinstance(value, list) else value
