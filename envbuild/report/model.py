"""The content of a report as values: what is known of an image or of a squashfs file. Each output is written from it.

A section without content names the reason instead: what did not run is never left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from envbuild.report.series import FloorRow, Series

# Sections that may be empty, each with its reason in `Report.missing`.
LAYERS, TIMES, MATRIX, BANDWIDTH, PACKAGES, LAUNCH = "layers", "times", "matrix", "bandwidth", "packages", "launch"


class Verdict(NamedTuple):
    """The verdict on an image. `kind`: good, bad or open (something is not known yet); `title`: in a few words;
    `text`: what it rests on."""

    kind: str
    title: str
    text: str


class Fault(NamedTuple):
    """A fault: what is wrong, where (a tier of verify, the matrix, the lock), and the command or change that repairs
    it."""

    text: str
    where: str
    fix: str = ""


class CheckRow(NamedTuple):
    """The result of one check of verify. `status`: pass, fail or not-run."""

    name: str
    tier: str
    status: str
    detail: str = ""
    fix: str = ""
    seconds: float = 0.0


class TierRow(NamedTuple):
    """A tier of verify: what it needs, its state (``passed``, ``failed``, ``partly: …``, ``not run: …``), and how many
    of its checks passed."""

    name: str
    needs: str
    state: str
    passed: int = 0


class Component(NamedTuple):
    """A component of the image, and where it is from."""

    name: str
    version: str
    origin: str = ""


class Origin(NamedTuple):
    """A place of inputs: how many files, and their bytes (0: not recorded)."""

    name: str
    files: int
    size: int


class Part(NamedTuple):
    """A part of the image by size: a layer, or a folder of a file."""

    name: str
    size: int
    about: str = ""


class Step(NamedTuple):
    """A step that took time. `group`: build or verify; `about`: what is special, such as a cache that it is from."""

    name: str
    seconds: float
    group: str
    about: str = ""


class Cited(NamedTuple):
    """A fact of the version matrix as the answer cites it. `kind`: conflict, condition, dispute, warning, need or fact;
    `source`: type and place; `seen`: the date on which it was checked."""

    fact: str
    kind: str
    text: str
    source: str = ""
    seen: str = ""


class Waived(NamedTuple):
    """A fact that the spec sets aside, and the reason."""

    fact: str
    reason: str


@dataclass(frozen=True, slots=True)
class MatrixPart:
    """The answer of the version matrix. `facts`: how many it rests on; `oldest`: the date of the oldest one."""

    verdict: str
    title: str
    cited: tuple[Cited, ...] = ()
    waived: tuple[Waived, ...] = ()
    facts: int = 0
    oldest: str = ""


class StartLine(NamedTuple):
    """A way to start the image: the output form, its text, and the command that writes it. `reason`: why there is no
    text, or what to replace in it."""

    form: str
    text: str
    command: str = ""
    reason: str = ""


class Package(NamedTuple):
    """A row of the software bill of materials."""

    name: str
    version: str
    kind: str
    origin: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Report:
    """All that is known of an image (`name` of the project) or of a file (its path is in `facts`).

    facts: title → value, for the head. epoch: seconds of the lock's date; 0 without a lock. parts_are: ``layers`` or
    ``folders``. missing: section → why it has no content. notes: remarks about the image, of the lock and the recipes.
    """

    name: str
    description: str
    verdict: Verdict
    facts: tuple[tuple[str, str], ...] = ()
    faults: tuple[Fault, ...] = ()
    checks: tuple[CheckRow, ...] = ()
    tiers: tuple[TierRow, ...] = ()
    components: tuple[Component, ...] = ()
    origins: tuple[Origin, ...] = ()
    parts: tuple[Part, ...] = ()
    parts_are: str = LAYERS
    steps: tuple[Step, ...] = ()
    matrix: MatrixPart | None = None
    series: tuple[Series, ...] = ()
    floors: tuple[FloorRow, ...] = ()
    packages: tuple[Package, ...] = ()
    start: tuple[StartLine, ...] = ()
    notes: tuple[str, ...] = ()
    epoch: int = 0
    missing: Mapping[str, str] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """Return the report as JSON has it: lists of objects with the names of the fields above."""
        value = asdict(self)
        rows = {key: [row._asdict() for row in getattr(self, key)] for key in ROWS}
        series = [{**asdict(one), "floor": one.floor._asdict() if one.floor else None} for one in self.series]
        matrix = self.matrix and {
            **asdict(self.matrix),
            "cited": [row._asdict() for row in self.matrix.cited],
            "waived": [row._asdict() for row in self.matrix.waived],
        }
        facts = dict(self.facts)
        return {**value, **rows, "series": series, "matrix": matrix, "facts": facts, "verdict": self.verdict._asdict()}


ROWS = ("faults", "checks", "tiers", "components", "origins", "parts", "steps", "floors", "packages", "start")
