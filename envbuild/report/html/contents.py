"""The sections about the content: components and their origins, sizes of layers, durations, the bill of materials."""

from __future__ import annotations

from collections.abc import Sequence

from envbuild.core.text import amount, counted, duration
from envbuild.report.html.bars import bars
from envbuild.report.html.elements import Html, Limits, element, join
from envbuild.report.html.tables import folded, missing, section, table
from envbuild.report.html.treemap import treemap
from envbuild.report.model import LAYERS, PACKAGES, TIMES, Package, Report

KINDS = {
    "deb": "Debian packages",
    "pypi": "Python packages",
    "github": "commits of GitHub",
    "gitlab": "commits of GitLab",
}
KINDS |= {"generic": "other sources", "oci": "base image", "operating-system": "distribution"}


def inside(report: Report, limits: Limits) -> Html:
    """Return the components with their versions and origins, and the places of all inputs."""
    parts = []
    open_ = element("span", "not recorded" if report.epoch else "the lock decides", class_="why")
    if report.components:
        rows = [(one.name, one.version or open_, one.origin or open_) for one in report.components]
        parts.append(table("Components", ("component", "version", "from"), rows, limits, codes=[1, 2], quiet=True))
    else:
        parts.append(missing("the image records no component"))
    if report.origins:
        places = [(one.name, one.files, amount(one.size) if one.size else "") for one in report.origins]
        files = sum(one.files for one in report.origins)
        words = f"Places of all {files} inputs, of the image and of its builds"
        parts.append(
            folded(
                words, table("Places of inputs", ("place", "files", "size"), places, limits, numbers=[1, 2], quiet=True)
            )
        )
    if report.notes:
        rows_of_notes = [(note,) for note in report.notes]
        parts.append(
            folded(f"Notes: {len(report.notes)}", table("Notes", ("note",), rows_of_notes, limits, quiet=True))
        )
    lead = "Every input is locked by its sha256." if report.origins else ""
    return section("inside", "What is inside, and where it is from", join(parts), lead=lead)


def sizes(report: Report, limits: Limits) -> Html:
    """Return the layers, or the folders of a file, as a treemap and as a table."""
    layers = report.parts_are == LAYERS
    title = "Sizes of layers" if layers else "Sizes of folders"
    if not report.parts:
        return section("sizes", title, missing(report.missing.get(LAYERS, "")))
    total = sum(part.size for part in report.parts)
    rows = [(part.name, amount(part.size), share_text(part.size / total), part.about) for part in report.parts if total]
    about = any(part.about for part in report.parts)
    head = ("layer" if layers else "folder", "size", "share", *(("content",) if about else ()))
    shares = [row if about else row[:3] for row in rows]
    found = table(title, head, shares, limits, numbers=[1, 2], codes=[3], quiet=True)
    words = counted(len(report.parts), "layer" if layers else "folder")
    lead = f"{amount(total)} in {words}, unpacked. The area of a part is its size."
    drawing = treemap(report.parts, f"{title}: {amount(total)} in {words}")
    return section("sizes", title, drawing, found if layers else folded(f"Table of {words}", found), lead=lead)


def share_text(share: float) -> str:
    """Return a share in percent; a small one is not printed as nothing."""
    return f"{share:.1%}" if share >= 0.0005 or not share else "< 0.1%"


def times(report: Report, limits: Limits) -> Html:
    """Return where the time of the build and of the verification went."""
    title = "Where the time went"
    if not report.steps:
        return section("times", title, missing(report.missing.get(TIMES, "")))
    parts = []
    for group, caption in (("build", "Build: seconds of each unit"), ("verify", "Verification: seconds of each part")):
        steps = [step for step in report.steps if step.group == group]
        if steps:
            total = sum(step.seconds for step in steps)
            if group == "build" and not report.parts:
                caption = "The image is not built; seconds of each unit that the store has"
            parts.append(bars(f"{caption}; {duration(total)} in all, some at the same time", steps, limits))
        elif group == "build":
            parts.append(missing(report.missing.get(TIMES, "")))
    return section("times", title, join(parts))


def materials(report: Report, limits: Limits) -> Html:
    """Return the bill of materials, a foldable table for each kind of package."""
    title = "Bill of materials"
    if not report.packages:
        return section("packages", title, missing(report.missing.get(PACKAGES, "")))
    kinds = sorted({row.kind for row in report.packages})
    parts = [packages_of(kind, [row for row in report.packages if row.kind == kind], limits) for kind in kinds]
    lead = (
        f"{counted(len(report.packages), 'component')} of the image itself; "
        "/etc/envbuild/sbom.cdx.json in it is the same as CycloneDX."
    )
    if not any(row.sha256 for row in report.packages):
        lead = (
            f"{counted(len(report.packages), 'package')} that the file has installed; their origins are not recorded."
        )
    return section("packages", title, join(parts), lead=lead)


def packages_of(kind: str, rows: Sequence[Package], limits: Limits) -> Html:
    """Return the packages of one kind. An origin that all of them have is in the heading."""
    name = KINDS.get(kind, kind)
    origins = {row.origin for row in rows}
    place = f", all from {next(iter(origins))}" if len(origins) == 1 and "" not in origins else ""
    cells = [
        (row.name, row.version, *(() if place else (row.origin,)), *((row.sha256[:16],) if row.sha256 else ("",)))
        for row in rows
    ]
    head = ("package", "version", *(() if place else ("from",)), "sha256, first 16 digits")
    found = table(f"{name}{place}", head, cells, limits, codes=range(1, len(head)), quiet=True)
    return folded(f"{len(rows)} × {name}{place}", found)
