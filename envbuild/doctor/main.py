"""The program of the single file: the same answers as ``envbuild doctor``, without envbuild."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from .ctrf import ctrf_data
from .examination import examine
from .health_check import KINDS, health_lines
from .host import Host
from .job_log import log_results, read_log
from .model import read_need
from .report_text import report_text

SCHEMA = 1
SPEC, ENGINE, VERIFY = 2, 5, 7  # exit codes, as envbuild's own


def main(arguments: Sequence[str], need_data: dict[str, Any], version: str) -> int:
    """Run the program. Return its exit code."""
    parser = argparse.ArgumentParser(
        description=f"envbuild doctor {version}: the facts of this node, and what it lacks"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--ctrf", action="store_true", help="print a CTRF report")
    parser.add_argument("--as", dest="kind", choices=KINDS, help="print failures for the health check of a site")
    parser.add_argument("--log", metavar="FILE", help="read the log of a job, too")
    options = parser.parse_args(arguments)
    host, need = Host(), read_need(need_data)
    if missing := missing_folder(host):
        print(
            f"error: {missing} cannot be read\nhint: mount -t {missing[1:]}fs {missing[1:]} {missing}", file=sys.stderr
        )
        return ENGINE
    found = examine(host, need)
    if options.log:
        try:
            with open(options.log, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                found = found.with_results(log_results(read_log(file), need))
        except OSError as error:
            print(f"error: {options.log}: {error.strerror}", file=sys.stderr)
            return SPEC
    if options.kind:
        lines = health_lines(found, options.kind)
        print("\n".join(lines), end="\n" if lines else "")
        return VERIFY if lines else 0
    if options.json:
        print(json.dumps({"schema": SCHEMA, **found.data()}, indent=1, sort_keys=True))
    elif options.ctrf:
        print(json.dumps(ctrf_data(found, version), indent=1))
    else:
        print(report_text(found))
    return VERIFY if found.serious else 0


def missing_folder(host: Host) -> str:
    """Return which of /proc and /sys is not mounted, or ""."""
    return next(
        (path for path, inside in (("/proc", "self/stat"), ("/sys", "devices")) if not host.has(f"{path}/{inside}")), ""
    )
