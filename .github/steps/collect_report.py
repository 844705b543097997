#!/usr/bin/env python3
"""The report of one build as JSON: ``collect_report.py IMAGE FOLDER``, with make.json and, if published images were
compared, diff.json in FOLDER. Texts and lists are shortened; `render_report.py` makes Markdown of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

MOST = 200  # entries of a list
LONG = 300  # characters of a text
SECTIONS = ("base", "components", "debian", "python", "sources", "env", "start", "labels")


def short(value: Any) -> Any:
    """Return a value of JSON with short texts, lists and mappings."""
    if isinstance(value, str):
        return value[:LONG]
    if isinstance(value, list):
        return [short(item) for item in value[:MOST]]
    if isinstance(value, dict):
        return {str(key)[:LONG]: short(value[key]) for key in sorted(value)[:MOST]}
    return value


def read(path: Path) -> dict[str, Any]:
    """Return the answer of a command; an error, if it printed none."""
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        return {"error": {"findings": [{"message": f"no {path.name}: the command did not end"}]}}


def error_text(answer: dict[str, Any]) -> str:
    """Return the findings of an error, "" without one."""
    return "; ".join(str(finding["message"]) for finding in answer.get("error", {}).get("findings", []))


def built(image: dict[str, Any]) -> dict[str, Any]:
    """Return what `make` states of an image, and the verdicts of verify."""
    path = Path(image["artifact"])
    found = {"sha256": image["sha256"], "size": path.stat().st_size}
    found |= {key: image[key] for key in ("built", "cached", "reused")}
    if image["evidence"]:
        evidence = json.loads(Path(image["evidence"]).read_text())
        found["verdicts"] = evidence["tiers"]
        found["failures"] = [row["name"] for row in evidence["results"] if row["status"] == "fail"]
    return found


def compared(answer: dict[str, Any]) -> dict[str, Any]:
    """Return what `diff` states: the image before, and what changed."""
    before = {key: answer["before"].get(key) for key in ("reference", "digest", "squashfs_sha256", "squashfs_size")}
    changes = {name: answer[name] for name in SECTIONS if answer.get(name)}
    return {"equal": answer["equal"], "before": before, "changes": changes, "spec": answer.get("spec") or []}


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    made = read(folder / "make.json")
    report: dict[str, Any] = {"schema": 1, "image": name, "error": error_text(made)}
    if not report["error"]:
        report |= built(made["images"][0])
        if (folder / "diff.json").exists():
            diff = read(folder / "diff.json")
            report |= {"not_compared": error_text(diff)} if "error" in diff else compared(diff)
    print(json.dumps(short(report), indent=1))


if __name__ == "__main__":
    main()
