"""``envbuild show FILE``: the origin of a squashfs file, how it starts, what it contains."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import IO, Any

from envbuild.core.errors import SpecError
from envbuild.core.result import Result
from envbuild.core.shell import shell_word
from envbuild.core.text import amount, printable
from envbuild.lock.model import lock_digest
from envbuild.squashfs.read.inode import printable_path
from envbuild.squashfs.read.superblock import describe_superblock
from envbuild.squashfs.read.tree import SquashTree
from envbuild.verify.contents.metadata import ImageMetadata, locked_packages, read_metadata
from envbuild.verify.contents.size_summary import SizeSummary
from envbuild.verify.contents.squashfs_path import find_squashfs_file

ROWS = 12  # folders in the text
FILES = 8


def show_file(file: Path) -> Result:
    """Return a description of a squashfs file of any origin. Raises VerifyError if it is damaged."""
    with SquashTree(file) as tree:
        within = read_metadata(tree)
        holdings = SizeSummary(str(file)).add_all(tree.walk())
    block = describe_superblock(file)
    packages = {"debian": within.debian, "python": holdings.python}
    data: dict[str, Any] = {
        "squashfs": block,
        "origin": within.origin,
        "export": within.export,
        "lock": lock_digest(within.lock) if within.lock else "",
        "locked": locked_packages(within.lock) if within.lock else {},
        "provenance": within.provenance,
        "labels": within.labels,
        "start": {"command": within.command, "workdir": within.workdir, "path": within.env.get("PATH", "")},
        "env": within.env,
        "packages": packages,
        "kinds": dict(sorted(holdings.kinds.items())),
        "unpacked": holdings.unpacked,
        "folders": {printable_path(path): size for path, size in holdings.folders.most_common()},
        "largest": [[printable_path(path), size] for path, size in holdings.largest],
    }
    return Result(data, "\n".join([headline(file, block), *origin_lines(file, within), *content_lines(data, holdings)]))


def cat_file(name: str, path: str, out: IO[bytes]) -> None:
    """Write one file of the squashfs file `name` to `out`.

    Raises SpecError if `name` is not a squashfs file, and if it has no file at `path`.
    """
    file = find_squashfs_file(name)
    if file is None:
        raise SpecError(f"--cat takes a squashfs file, and {name} is a spec's name", hint="envbuild list")
    with SquashTree(file) as tree:
        try:
            stream = tree.open(os.fsencode(path))
        except FileNotFoundError:
            raise SpecError(f"there is no file {path} in {name}", hint=f"unsquashfs -l {shell_word(file)}") from None
        with stream:
            shutil.copyfileobj(stream, out, 1 << 20)
    out.flush()


def headline(file: Path, block: dict[str, Any]) -> str:
    """Return the superblock in one line."""
    level = f" level {block['level']}" if block["level"] else ""
    size = amount(block["size"])
    return f"{file}: {size}, {block['inodes']} inodes, {block['codec']}{level}, block {block['block']}"


def origin_lines(file: Path, within: ImageMetadata) -> list[str]:
    """Return the lines about the image's own records: origin, lock, start, labels."""
    origin, rows = within.origin, []
    if origin:
        image, target = (printable(origin.get(key, "?")) for key in ("image", "target"))
        rows.append(f"image {image} for target {target}, made by envbuild from the lock inside")
    elif within.export:
        rows.append("converted by envbuild from an image that was made elsewhere")
    elif within.provenance:
        rows.append(f"imported by enroot from {printable(within.provenance)}")
    else:
        rows.append("origin not recorded: not built by envbuild")
    if within.lock:
        command = f"envbuild show {shell_word(file)} --cat etc/envbuild/lock.yaml"
        rows.append(f"lock      {lock_digest(within.lock)[7:19]}: {command}")
    if within.lock_error:
        rows.append(f"lock      not readable: {printable(within.lock_error)}")
    rows += export_lines(within.export)
    remarks = origin.get("remarks")
    rows += [f"note      {printable(remark)}" for remark in (remarks if isinstance(remarks, list) else [])]
    if within.has_start_script:
        rows.append(f"starts    {printable(within.command) or '?'} in {printable(within.workdir) or '/'}")
    else:
        rows.append("starts    not recorded: no /etc/rc")
    if path := within.env.get("PATH"):
        rows.append(f"PATH      {printable(path)}")
    rows += [f"label     {printable(name)} {printable(value)}" for name, value in sorted(within.labels.items())]
    return [f"  {row}" for row in rows]


def export_lines(export: dict[str, Any]) -> list[str]:
    """Return the content of export.json (`envbuild.export.squashfs_image`): the image by its configuration, how it was
    written, what was repaired."""
    image, written = (value if isinstance(value := export.get(key), dict) else {} for key in ("image", "compression"))
    rows = []
    if image:
        layers = image.get("layers")
        count = f", {len(layers)} layers" if isinstance(layers, list) else ""
        known = ", ".join(f"{key} {image[key]}" for key in ("config", "architecture") if image.get(key))
        rows.append(f"contents  {printable(known)}{count}")
    if written:
        known = ", ".join(f"{key} {written[key]}" for key in ("library", "level", "block") if key in written)
        rows.append(f"written   {printable(known)}, writer {printable(export.get('writer', '?'))}")
    for key, word in (("notes", "note"), ("repairs", "repaired")):
        lines = export.get(key)
        rows += [f"{word:9} {printable(line)}" for line in (lines if isinstance(lines, list) else [])]
    return rows


def content_lines(data: dict[str, Any], holdings: SizeSummary) -> list[str]:
    """Return the lines about the content: components, counts, the largest folders and files."""
    kinds, packages = data["kinds"], data["packages"]
    counts = ", ".join(f"{number} {plural(kind, number)}" for kind, number in kinds.items())
    rows = [
        f"  contains  {amount(data['unpacked'])} unpacked: {counts}",
        f"  packages  {len(packages['debian'])} of Debian, {len(packages['python'])} of Python",
    ]
    versions = data["origin"].get("versions")
    if isinstance(versions, dict) and versions:
        rows.append("components")
        rows += [f"  {printable(name)} {printable(version)}" for name, version in sorted(versions.items())]
    for title, items in (
        ("largest folders", holdings.folders.most_common(ROWS)),
        ("largest files", holdings.largest[:FILES]),
    ):
        if items:
            rows.append(title)
            rows += [f"  {amount(size):>9}  {printable_path(path)}" for path, size in items]
    return rows


def plural(kind: str, number: int) -> str:
    """Return the plural of a kind where needed: ``1 directory``, ``2 directories``."""
    if number == 1:
        return kind
    return f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
