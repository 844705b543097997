"""The terms of the matrix: components, questions, facts and their rows, as in the fact files.

A *fact* states in one or more *rows*: when these components are so, then those must be so. Facts that answer the same
*question* conflict where they disagree. See docs/matrix.md for the files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

KINDS = ("provides", "requires", "limits", "forbids")
SCOPES = ("install", "build", "container-start", "runtime")
STRENGTHS = ("hard", "warn", "conditional", "disputed")
SOURCES = ("measured", "metadata", "upstream-code", "upstream-docs", "issue")  # best first: their precedence
COMPONENT_KINDS = ("version", "name", "sm")


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a fact: `type` one of SOURCES, `where` (repository@commit path, document, file name), `seen`
    (YYYY-MM-DD), `how` (what was done to know it)."""

    type: str
    where: str
    seen: str
    how: str


@dataclass(frozen=True, slots=True)
class Component:
    """Something that has a version or a name: torch, gpu, driver, base.

    `values` are canonical, newest first (names: in the order of the file). `aliases`: other spelling, folded → value.
    `rank` orders the picks (low first), `cost` the fixes (cheap first). `complete`: between the oldest and the newest
    of `values` there is no other version; `labels`: beginnings of the local labels (``cu``) of which every
    build is listed, up to the release `labelled`. `between`: versions between the oldest and the newest known are like
    them; `newer`: why newer ones than all known are, too. `precision`: digits that count (python 2: 3.11.9 is 3.11); 0:
    all of them.
    `exact`: a version that the user writes is that version, not all that begin with it. `hidden`: it is never requested
    by name; it follows from others. `wanted`: another value or none does not replace what a user requests. `shown` is
    its text in messages (also the key in fact files), `packages` are its Python distributions (none: the one of its own
    name)."""

    name: str
    kind: str
    about: str
    rank: int = 50
    cost: int = 5
    complete: bool = False
    labels: tuple[str, ...] = ()
    labelled: str = ""
    between: bool = False
    newer: str = ""
    precision: int = 0
    exact: bool = False
    hidden: bool = False
    wanted: bool = False
    shown: str = "{name}=={value}"  # prose: keep
    packages: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Question:
    """A question that must be answered before a request with all components of `of` can be called valid. It arises only
    where all of `when` is so: for a torch that is compiled here it does not matter for which Pythons there are
    wheels."""

    id: str
    of: tuple[str, ...]
    about: str
    when: Mapping[str, Constraint] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Term:
    """One comparison. `op`: ``==`` (that version, without a local label unless given), ``!=``, ``>=``, ``>``, ``<=``,
    ``<``, ``in`` (begins with: 2.8 holds 2.8.1), ``is`` (a name), ``any`` (present), ``none`` (absent), ``cubin``,
    ``ptx`` (a GPU runs code built for that architecture)."""

    op: str
    operand: str = ""


@dataclass(frozen=True, slots=True)
class Constraint:
    """The allowed values of a component: one of `alternatives`, each a conjunction of terms. `text` is as in the
    file."""

    alternatives: tuple[tuple[Term, ...], ...]
    text: str


@dataclass(frozen=True, slots=True)
class Row:
    """One case of a fact. `where` is ``file:line:column``."""

    when: Mapping[str, Constraint]
    then: Mapping[str, Constraint]
    where: str = field(compare=False)
    note: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact with its rows. `because` is the sentence when the fact is part of a conflict, `condition` what the user
    must ensure when it is conditional, `hint` what to do; all may contain ``{component}``. A `default` fact names the
    value that is meant when a request names none: it is set aside when a request names another one. `asserts`:
    ``compatible`` where the source states that all versions work, so that ``*`` is evidence. `known_to`: component →
    the newest version that the source knew; none: that of the day on which it was seen."""

    id: str
    kind: str
    scope: str
    strength: str
    source: Source
    rows: tuple[Row, ...]
    where: str = field(compare=False)
    question: str = ""
    because: str = ""
    condition: str = ""
    hint: str = ""
    default: bool = False
    asserts: str = ""
    known_to: Mapping[str, str] = field(default_factory=dict)
    replaces: bool = field(default=False, compare=False)  # the fact of the same id of an earlier folder


@dataclass(frozen=True, slots=True)
class Facts:
    """The content of all fact files; of `independent`, `through`, `narrowed_pairs` and `known_to` see
    `envbuild.matrix.facts.rule`. `digest` is of their bytes. Two are equal when their content is, in any order of
    files."""

    components: Mapping[str, Component]
    questions: Mapping[str, Question]
    facts: Mapping[str, Fact]
    independent: Mapping[tuple[str, str], str] = field(default_factory=dict)
    through: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    narrowed_pairs: Mapping[tuple[str, str], tuple[str, Constraint, tuple[str, ...]]] = field(default_factory=dict)
    known_to: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    digest: str = field(default="", compare=False)
