"""The document of a rank (`envbuild.gpu.rank`) as values: the end of its program, and its logs of NCCL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..doctor.processes import Output
from .tools.nccl_log import NcclLog


def rank_output(document: Mapping[str, Any]) -> Output:
    """Return the end of a rank's program."""
    return Output(
        str(document["text"]), str(document["errors"]), int(document["code"]), str(document["fault"]),
        float(document["seconds"]),
    )  # fmt: skip


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
