"""The text of `envbuild diff` for published images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envbuild.core.text import amount, counted, human_list, printable
from envbuild.verify.contents.diff_text import TITLES, limit_lines, section_lines, side_line

ALL_TITLES = {
    **TITLES,
    "labels": ("labels", "label"),
    "resolution": ("resolution", "part of the resolution"),
    "content": ("content", "digest"),
}
NAMES = {**{key: title for key, (title, _) in ALL_TITLES.items()}, "spec": "spec", "layers": "layers"}


def remote_diff_report(data: Mapping[str, Any]) -> str:
    """Return the lines of `envbuild.publish.diff_remote.diff_remote`."""
    lines = [f"{letter}  {published_line(data[key])}" for letter, key in (("A", "before"), ("B", "after"))]
    lines.append(summary_line(data))
    for key, (title, _) in ALL_TITLES.items():
        if data[key]:
            lines += [title, *limit_lines(list(section_lines(data[key])), everything=False)]
    layers = data["layers"]
    rows = [f"  {sign} {layer_name(row)}" for sign, key in (("-", "removed"), ("+", "added")) for row in layers[key]]
    if rows:
        lines += ["layers", *limit_lines(rows, everything=False)]
    if data["spec"]:
        lines += ["spec", *limit_lines([f"  {printable(line)}" for line in data["spec"]], everything=False)]
    for key in ("before", "after"):
        if data[key]["lock_error"]:
            lines.append(f"lock of {data[key]['name']}\n  {printable(data[key]['lock_error'])}")
    if data["not_compared"]:
        lines.append(
            "not compared, because one image does not state it, or only as its own word: "
            + names_of(data["not_compared"])
        )
    return "\n".join(lines)


def published_line(value: Mapping[str, Any]) -> str:
    """Return the line of an image."""
    if not value["reference"]:
        return side_line(value)
    image = f" ({printable(value['image'])})" if value["image"] else ""
    squashfs = f"; squashfs file {amount(value['squashfs_size'])}" if value["squashfs_size"] is not None else ""
    return f"{value['reference']}{image}: {counted(value['layers'], 'layer')}, {amount(value['bytes'])}{squashfs}"


def summary_line(data: Mapping[str, Any]) -> str:
    """Return one line: equal, or how much differs, and what a pull of the second image fetches."""
    layers = data["layers"]
    if data["equal"]:
        return f"equal: {counted(layers['same'], 'layer')} with the same content" if layers["same"] else "equal"
    parts = []
    for key, (_, one) in ALL_TITLES.items():
        if number := sum(len(names) for names in data[key].values()):
            parts.append(counted(number, one))
    parts += [f"{counted(len(layers[key]), 'layer')} {key}" for key in ("added", "removed") if layers[key]]
    if data["spec"]:
        parts.append(f"{counted(len(data['spec']), 'line')} of the spec")
    after = f"; {amount(data['new_bytes'])} of B to fetch with A in the store" if data["new_bytes"] is not None else ""
    if not parts:
        why = "one of them has no squashfs file to compare"
        if "content" not in data["not_compared"]:
            why = "no difference was found, but their layers are not read, and have other blobs or none"
        return f"not known to be equal: {why}{after}"
    return f"different: {', '.join(parts)}{after}"


def layer_name(row: Mapping[str, Any]) -> str:
    """Return a layer in words."""
    size = f", {amount(row['size'])}" if row["size"] else ""
    return f"{printable(row['unit'] or 'layer')} {row['diff_id'][7:19]}{size}"


def names_of(sections: list[str]) -> str:
    """Return the names of sections."""
    return human_list([NAMES[key] for key in sections], len(sections))
