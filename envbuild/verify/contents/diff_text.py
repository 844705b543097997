"""The text of `envbuild diff`: a summary, then each section, then the folders, and the paths if requested."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from envbuild.core.text import amount, counted, printable

ROWS = 15  # of a section, without --files

TITLES = {  # section → its title, and what one of it is called
    "base": ("base", "base"),
    "components": ("components", "component"),
    "debian": ("Debian packages", "Debian package"),
    "python": ("Python packages", "Python package"),
    "sources": ("sources", "source"),
    "inputs": ("inputs", "input"),
    "env": ("environment", "variable"),
    "start": ("start", "part of the start"),
}
SIGNS = {"added": "+", "removed": "-", "changed": "~", "time": "t"}


def diff_report(data: Mapping[str, Any], *, everything: bool) -> str:
    """Return the lines of `envbuild.verify.contents.diff.diff_images`."""
    lines = [f"{letter}  {side_line(data[key])}" for letter, key in (("A", "before"), ("B", "after"))]
    lines.append(summary_line(data))
    for key, (title, _) in TITLES.items():
        if data[key]:
            lines += [title, *limit_lines(list(section_lines(data[key])), everything)]
    files = data["files"]
    if files is None:
        missing = sorted({data[key]["name"] for key in ("before", "after") if not data[key]["file"]})
        are = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'}"
        lines += ["files", f"  not compared: {are} not built; run: envbuild make {shlex.join(missing)}"]
        return "\n".join(lines)
    if data["folders"]:
        lines += [
            "folders",
            *limit_lines([folder_line(name, row) for name, row in data["folders"].items()], everything),
        ]
    paths = data.get("paths", [])
    if paths:
        lines += ["paths", *(path_line(row) for row in paths)]
    elif not data["equal"]:
        names = shlex.join(data[key]["name"] for key in ("before", "after"))
        lines.append(f"  every path: envbuild diff --files {names}")
    return "\n".join(lines)


def side_line(value: Mapping[str, Any]) -> str:
    """Return the line of an image and its file."""
    image = f" ({printable(value['image'])})" if value["image"] and value["image"] != value["name"] else ""
    block = value["squashfs"]
    if not block:
        return f"{value['name']}{image}: its lock; the image is not built"
    level = f" level {block['level']}" if block["level"] else ""
    size = amount(block["size"])
    return f"{value['file']}{image}: {size}, {block['inodes']} inodes, {block['codec']}{level}, block {block['block']}"


def summary_line(data: Mapping[str, Any]) -> str:
    """Return one line: equal, or how much differs."""
    files = data["files"]
    if data["equal"]:
        if files is None:
            return "equal: the same components, packages and sources"
        return f"equal: {files['entries']} paths with the same content, {amount(files['unpacked'][0])}"
    parts = []
    for key, (_, one) in TITLES.items():
        number = sum(len(names) for names in data[key].values())
        if number:
            parts.append(counted(number, one))
    if files:
        parts += [f"{counted(files[what], 'path')} {what}" for what in ("added", "removed", "changed") if files[what]]
        if files["time"]:
            parts.append(f"{counted(files['time'], 'path')} with another time only")
        before, after = files["unpacked"]
        if before != after:
            parts.append(f"{amount(before)} → {amount(after)} unpacked")
    return f"different: {', '.join(parts)}" if parts else "not known to be equal: only one of them is built"


def section_lines(parts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield names in order, as `envbuild lock` reports its changes."""
    rows = [(name, f"+ {name} {value}") for name, value in parts["added"].items()]
    rows += [(name, f"- {name} {value}") for name, value in parts["removed"].items()]
    rows += [(name, f"~ {name} {was} → {now}") for name, (was, now) in parts["changed"].items()]
    for _, text in sorted(rows):
        yield f"  {printable(text)}"


def limit_lines(lines: list[str], everything: bool) -> list[str]:
    if everything or len(lines) <= ROWS:
        return lines
    return [*lines[:ROWS], f"  and {len(lines) - ROWS} more (--files or --json)"]


def folder_line(name: str, row: Mapping[str, Any]) -> str:
    """Return the line of a folder: the change of its size, and the counts of changes in it."""
    grown = row["after"] - row["before"]
    sign = "+" if grown > 0 else "-" if grown < 0 else " "
    counts = ", ".join(f"{row[what]} {what}" for what in ("added", "removed", "changed") if row.get(what))
    return (
        f"  {sign + amount(abs(grown)):>10}  {name or '/'}  {amount(row['before'])} → {amount(row['after'])}, {counts}"
    )


def path_line(row: Mapping[str, Any]) -> str:
    """Return the line of a path that differs."""
    text = ", ".join(f"{name} {was} → {now}" for name, (was, now) in row["fields"].items())
    if not text:
        size = f", {amount(max(row['size']))}" if row["kind"] == "file" else ""
        text = f"{row['kind']}{size}"
    return f"  {SIGNS[row['what']]} {row['path']}: {printable(text)}"
