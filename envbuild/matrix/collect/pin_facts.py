"""The facts about a package around torch, from what was read of its releases."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from envbuild.matrix.collect.fact_writer import Derived, DerivedFact, DerivedRow
from envbuild.matrix.collect.pin_rows import (
    PACKAGES,
    Project,
    ReleaseMetadata,
    core_rows,
    machine_rows,
    pin_rows,
    python_rows,
    wheel_rows,
    withdrawn_rows,
)
from envbuild.matrix.facts.version import newest_first

COLLECTOR = "collector pins 1"
# so common that a requirement on it does not add it to an answer
LIMITED = ("numpy", "protobuf", "pydantic")


@dataclass(frozen=True, slots=True)
class Rule:
    """One fact of a project's file: `rows` returns its rows for a release, `what` is the part of the metadata that they
    are from. In `because`, ``{release}`` is replaced by the project with its version. The other fields are those of a
    fact."""

    id: str
    rows: Callable[[Project, ReleaseMetadata], list[DerivedRow]]
    what: str
    because: str
    how: str
    kind: str = "limits"
    strength: str = "hard"
    question: str = ""
    condition: str = ""

    def demands(self, row: DerivedRow) -> bool:
        """Return whether a row limits anything: a requirement on any version adds a component at most."""
        return self.kind != "limits" or any(value != "*" for value in row.then.values())

    def fact(self, project: Project, releases: Iterable[ReleaseMetadata]) -> DerivedFact:
        """Return the fact with its rows for all releases."""
        name = project.component
        question = f"{name}-{self.question}"
        packages = ", ".join(filter(None, [*project.packages, project.torch_part]))
        return DerivedFact(
            id=f"{name}.{self.id}",
            question=question if question in project.questions else "",
            kind=self.kind,
            scope="install",
            strength=self.strength,
            type="metadata",
            where=f"{packages} on the package index: {self.what}",
            how=f"{COLLECTOR}; {self.how}",
            because=self.because.replace("{release}", f"{name} {{{name}}}"),
            condition=self.condition,
            rows=tuple(row for release in releases for row in self.rows(project, release) if self.demands(row)),
        )


RULES = (
    *(
        Rule(
            f"{component}-pin",
            partial(pin_rows, component=component),
            "METADATA of wheels, PKG-INFO of sdists where there are none (Requires-Dist)",
            f"the metadata of {{release}} requires {component} {{row.{component}}}",
            "markers evaluated for each machine and Python; the sha256 is of the metadata",
            kind="limits" if component in LIMITED else "requires",
            question=component,
        )
        for component in dict.fromkeys(PACKAGES.values())
    ),
    Rule(
        "python-tags",
        python_rows,
        "tags of wheels; Requires-Python where a wheel is for any Python or an sdist can be built",
        "{release} cannot be installed for Python {python}",
        "tags of Linux wheels, Requires-Python",
        question="python",
    ),
    Rule(
        "python-wheels",
        wheel_rows,
        "tags of wheels",
        "there is no wheel of {release} for Python {python}, so it would be compiled",
        "tags of the Linux wheels of releases that have an sdist too",
        strength="warn",
    ),
    Rule(
        "wheel-machine",
        machine_rows,
        "platform tags of wheels",
        "there is no wheel of {release} for {arch}",
        "platform tags of the Linux wheels",
        strength="warn",
    ),
    Rule(
        "withdrawn",
        withdrawn_rows,
        "yanked files (PEP 592)",
        "all files of {release} are yanked: upstream withdrew it",
        "data-yanked on the index page",
        kind="forbids",
        strength="warn",
    ),
    Rule(
        "core-wheel",
        core_rows,
        "METADATA of transformer-engine (Requires-Dist and extras)",
        "{release} has no core wheel for torch's CUDA {torch-cuda}",
        "transformer-engine-cuXX that the selector wheel requires, with any extra; the sha256 is of METADATA",
        strength="conditional",
        condition="Transformer Engine is compiled from source for CUDA {torch-cuda}, core and torch part",
    ),
)


def make_facts(project: Project, known: Iterable[ReleaseMetadata]) -> Derived:
    """Return the file of one project, from what was read."""
    releases = list(known)
    found = (rule.fact(project, releases) for rule in RULES)
    values = newest_first(one.release.version for one in releases)
    return Derived({project.component: {"values": values}}, {}, tuple(fact for fact in found if fact.rows))
