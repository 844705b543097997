"""``envbuild check COMPONENT=VERSION…``: the answer to words such as ``torch=2.8``."""

from __future__ import annotations

from collections.abc import Sequence

from envbuild.cli.check_result import CheckResult
from envbuild.core.errors import Finding, SpecError
from envbuild.core.yaml_reader import closest
from envbuild.matrix.answer.check import check
from envbuild.matrix.facts.compile import load_fact_table
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.waiver import Waiver
from envbuild.matrix.solve.request import Ask, parse_request
from envbuild.spec.project import Project, is_valid_name

LISTS = "the images: envbuild list; the components: envbuild matrix show"


def check_words(words: Sequence[str], project: Project, why: str = "", waived: Sequence[str] = ()) -> CheckResult:
    """Return the answer to words such as ``torch=2.0.1 gpu=H100``.

    why: a component; the answer then explains why it is not newer.
    waived: facts that the answer leaves out.
    Raises SpecError.
    """
    matrix = load_fact_table(project.facts())
    names = [*project.images(), *(component.name for component in matrix.components if not component.hidden)]
    strange = [word for word in words if word.isprintable() and is_valid_name(word) and word not in matrix.number]
    if strange:
        raise SpecError.of(
            Finding(f"no image and no component is called '{word}'", hint=closest(word, names) or LISTS)
            for word in strange
        )
    asks = parse_request(words, matrix)
    waivers = tuple(Waiver(fact, "of --waive", "--waive") for fact in dict.fromkeys(waived))
    answer = check(matrix, asks, waivers)
    because = why_not_newer(matrix, asks, why, waivers) if why else ()
    return CheckResult(matrix, answer, " ".join(words), why=why, because=because)


def why_not_newer(
    matrix: FactTable, asks: Sequence[Ask], component: str, waivers: Sequence[Waiver] = ()
) -> tuple[str, ...]:
    """Return why a component is not newer. Raises SpecError for an unknown component."""
    from envbuild.matrix.answer.not_newer import explain_not_newer

    return tuple(explain_not_newer(matrix, asks, component, waivers))
