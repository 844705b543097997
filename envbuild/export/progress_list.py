"""`export --list`: the exports that run on a store, on any host, and those that ended within a day.

It reads the records of `envbuild.export.progress`. Any user may have written them: files that are not valid records are
ignored. Read access to the store is sufficient.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Any

from envbuild.core.json_text import record_value
from envbuild.core.result import Result
from envbuild.core.store.access import check_readable
from envbuild.core.text import amount, duration, printable, table
from envbuild.export.progress_records import DAY, FOLDER, Owner, process_start

SILENT = 180.0  # seconds without a sign of life from another host
LARGEST = 1 << 16  # bytes of a record
MOST = 1 << 53  # bytes, and seconds: every number of a record is smaller
MOST_PID = 1 << 31  # of a C int
ENDED = ("done", "failed", "interrupted")
TEXTS, NUMBERS = ("source", "output", "state", "error"), ("bytes", "total", "rate", "started", "ended")


def list_exports(root: Path) -> Result:
    """Return the exports of the store `root`, running ones first, then the newest. It may be the store of another user.

    Raises EngineError for a store that this user may not read."""
    check_readable(root)
    here, now = Owner.here(), time.time()
    rows = [row for path in record_paths(root) if (row := export_row(path, here, now))]
    rows.sort(key=lambda row: (not row["running"], -row["started"]))
    return Result({"exports": rows}, table_text(rows, root))


def record_paths(root: Path) -> list[Path]:
    """Return the records of the last day: older ones are removed by the next export."""
    after = time.time() - DAY
    try:
        named = [path for path in (root / FOLDER).iterdir() if not path.name.startswith(".")]
        return sorted(path for path in named if path.lstat().st_mtime >= after)
    except OSError:
        return []


def read_record(path: Path) -> tuple[dict[str, Any], float] | None:
    """Return (content, time of writing); None for a file that is not a record or no longer exists."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would block
        with os.fdopen(file, "rb") as content:
            found = os.fstat(file)
            value: Any = record_value(content.read(LARGEST)) if stat.S_ISREG(found.st_mode) else None
        process = value["process"]
        fields = {"host": str, "boot": str, "space": str, "pid": int, "began": int, "user": str}
        if not all(isinstance(process[name], kind) for name, kind in fields.items()):
            return None
        if not all(isinstance(value[name], str) for name in TEXTS):
            return None
        numbers = [process["began"], *(value[name] for name in NUMBERS)]
        if not all(isinstance(number, int | float) and 0 <= number < MOST for number in numbers):
            return None  # also NaN and Infinity, which `json` reads
        if not 0 <= process["pid"] < MOST_PID:
            return None
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return value, found.st_mtime


def export_row(path: Path, here: Owner, now: float) -> dict[str, Any] | None:
    """Return one export as a row of `--json`; None if the file is not a record."""
    found = read_record(path)
    if found is None:
        return None
    value, written = found
    process, state, ended = value["process"], value["state"], value["ended"]
    silent = 0
    if state not in ENDED:
        quiet = now - written > SILENT
        same = (process["boot"], process["space"]) == (here.boot, here.space) and here.boot != ""
        if same and not is_running(process["pid"], process["began"]):
            state, ended = "interrupted", written
        elif not same and quiet and process["host"] == here.host and process["boot"] != here.boot:
            state, ended = "interrupted", written  # this machine was restarted since
        elif not same and quiet:
            silent = int((now - written) / 60)
    running = state not in ENDED
    rate = value["rate"] if not silent else 0
    left = value["total"] - value["bytes"]
    return {
        "source": value["source"],
        "output": value["output"],
        "state": state,
        "running": running,
        "silent_minutes": silent,
        "bytes": value["bytes"],
        "total": value["total"],
        "rate": rate,
        "eta": round(left / rate) if running and 0 < left < rate * MOST else None,
        "elapsed": round(max((ended or now) - value["started"], 0), 1),
        "started": value["started"],
        "ended": ended or None,
        "error": value["error"],
        "host": process["host"],
        "pid": process["pid"],
        "user": process["user"],
    }


def is_running(pid: int, began: int) -> bool:
    """Return whether the process of this machine that began at this time still runs."""
    found = process_start(pid) if pid > 0 else None
    return found is not None and (not found or not began or found == began)


# text output
def table_text(rows: list[dict[str, Any]], root: Path) -> str:
    if not rows:
        return "no export runs on this store, and none ended in the last day"
    head = ["SOURCE", "OUTPUT", "STATE", "DONE", "RATE", "ETA", "ELAPSED", "BY"]
    lines = [table(head, [table_row(row, root) for row in rows])]
    for row in rows:
        first, *more = row["error"].splitlines() or [""]
        lines += [f"  {printable(row['source'])}: {printable(first)}"] if first else []
        lines += [f"    {printable(line)}" for line in more]
    return "\n".join(lines)


def table_row(row: dict[str, Any], root: Path) -> list[str]:
    whole = f" of {amount(row['total'])}" if row["total"] and row["state"] != "done" else ""
    state = f"silent for {row['silent_minutes']} min" if row["silent_minutes"] else row["state"]
    output = Path(row["output"])
    short = output.name if output.parent == (root / "artifacts").absolute() else row["output"]
    return [
        printable(row["source"]),
        printable(short) or "-",
        printable(state),
        f"{amount(row['bytes'])}{whole}",
        f"{amount(row['rate'])}/s" if row["rate"] else "-",
        duration(row["eta"]) if row["eta"] else "-",
        duration(row["elapsed"]),
        printable(f"{row['user']}@{row['host']} {row['pid']}"),
    ]
