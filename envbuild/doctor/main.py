"""The program of the single file: the same answers as ``envbuild doctor``, without envbuild."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from .ctrf import ctrf_data
from .examination import examine, unknown_checks
from .health_check import KINDS, draining_failures, health_lines, unknown_line
from .host import Host
from .job_log import read_log_file
from .log_results import log_results
from .model import SCHEMA, read_need
from .report_text import report_text

SPEC, ENGINE, VERIFY = 2, 5, 7  # exit codes, as envbuild's own


def main(arguments: Sequence[str], need_data: dict[str, Any], version: str) -> int:
    """Run the program. Return its exit code."""
    parser = argparse.ArgumentParser(
        description=f"envbuild doctor {version}: the facts of this node, and what it lacks"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--ctrf", action="store_true", help="print a CTRF report")
    parser.add_argument("--as", dest="kind", choices=KINDS, help="print failures for the health check of a site")
    parser.add_argument("--only-hardware", action="store_true", help="with --as: print failures of hardware alone")
    parser.add_argument("--without", metavar="CHECK", action="append", default=[], help="leave a check out; repeatable")
    parser.add_argument("--log", metavar="FILE", help="read the log of a job, too")
    options = parser.parse_args(arguments)
    if unknown := unknown_checks(options.without):
        parser.error(f"--without: unknown check: {', '.join(unknown)}")
    if options.only_hardware and not options.kind:
        parser.error("--only-hardware needs --as")
    host, need = Host(notice=print_line), read_need(need_data)
    if missing := missing_folder(host):
        print_line(f"error: {missing} cannot be read\nhint: {mount_command(missing)}")
        return ENGINE
    try:
        reading = read_log_file(options.log, print_line) if options.log else None
    except OSError as error:
        print_line(f"error: {options.log} cannot be read: {error.strerror}")
        return SPEC
    found = examine(host, need, options.without)
    if reading:
        found = found.with_log(log_results(reading, need))
    lines = health_lines(found, options.kind, options.only_hardware) if options.kind else []
    if options.kind and (line := unknown_line(found)):
        print_line(line)
    if options.kind:
        text = "\n".join(lines)
    elif options.json:
        text = json.dumps({"schema": SCHEMA, **found.data()}, indent=1, sort_keys=True)
    elif options.ctrf:
        text = json.dumps(ctrf_data(found, version), indent=1)
    else:
        text = report_text(found)
    try:
        print(text, end="\n" if text else "", flush=True)
    except OSError as error:
        print_line(f"error: the report cannot be written: {error.strerror}")
        os._exit(ENGINE)  # without the interpreter's own attempt to write the rest
    unfit = draining_failures(found, only_hardware=options.only_hardware) if options.kind else found.serious
    return VERIFY if unfit else 0


def missing_folder(host: Host) -> str:
    """Return which of /proc and /sys is not mounted, or ""."""
    return next(
        (path for path, inside in (("/proc", "self/stat"), ("/sys", "devices")) if not host.has(f"{path}/{inside}")), ""
    )


def mount_command(folder: str) -> str:
    """Return the command that mounts /proc or /sys."""
    kind = {"/proc": "proc", "/sys": "sysfs"}[folder]
    return f"mount -t {kind} {kind} {folder}"


def print_line(line: str) -> None:
    """Print a line for the user: stdout is data."""
    print(line, file=sys.stderr, flush=True)
