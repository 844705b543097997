"""Conflicts as sentences: the reasons, and what to change. Also why a version is not newer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from envbuild.core.distributions import DISTRIBUTIONS
from envbuild.core.errors import SpecError
from envbuild.core.yaml_reader import did_you_mean
from envbuild.matrix.answer import conflict_core
from envbuild.matrix.answer.clauses import because_clauses
from envbuild.matrix.answer.fix_trial import FREE, PlanFilter, Rules
from envbuild.matrix.answer.fixes import PLANS, Fix, find_fixes, find_fixes_of_one
from envbuild.matrix.answer.hardware_limits import hardware_hint
from envbuild.matrix.answer.typed_back import TypedBack
from envbuild.matrix.facts.atoms import PRESENT_KINDS
from envbuild.matrix.facts.fact_table import HARDWARE, FactTable
from envbuild.matrix.facts.waiver import Waiver
from envbuild.matrix.solve.encoding import Core
from envbuild.matrix.solve.lasting_gaps import can_be_covered, unheard_requests
from envbuild.matrix.solve.phrasing import Reason, component_text, conflict_sentence, join_and, row_reason
from envbuild.matrix.solve.query import Query, undecided_as_unknown
from envbuild.matrix.solve.request import Ask


@dataclass(frozen=True, slots=True)
class Conflict:
    """Facts and requirements that contradict each other. `minimal`: without any one of them the rest is possible.
    `fixes` are the nearest changes that work, cheapest first; `also` are other reasons against the same `asks`.
    `hardware`: of an image for which there is no such change, the hardware that would be needed."""

    text: str
    reasons: tuple[Reason, ...]
    asks: tuple[Ask, ...]
    minimal: bool
    fixes: tuple[str, ...]
    also: tuple[str, ...] = ()
    hardware: str = ""

    @property
    def hint(self) -> str:
        return ", or ".join(self.fixes) or self.hardware


def find_conflicts(case: Query, good: PlanFilter) -> tuple[Conflict, ...]:
    """Return every conflict of a request as a sentence, with the nearest changes that work. Conflicts of the same
    `asks` are one. `good` decides whether a change leads to a plan that is known."""
    with undecided_as_unknown():
        found = conflict_core.find_cores(case.matrix, case.wanted, case.waived)
    found_fixes = fixes_by_conflict(case, found, good)
    if not case.image:
        typed = TypedBack(case)
        found_fixes = [typed.keep_working(some) for some in found_fixes]
    far = hardware_hint(case, found, spec_rules(case)) if case.image and not all(found_fixes) else ""
    by_asks: dict[tuple[Ask, ...], Conflict] = {}
    same_cause: dict[tuple[Ask, ...], list[str]] = {}
    for core, some in zip(found, found_fixes, strict=True):
        involved = needed_asks(case, core)
        known = {ask.component: ask.constraint.text for ask in involved}
        reasons = core_reasons(case, core, known)
        clauses = because_clauses(case.matrix, core, reasons, known)
        text = conflict_sentence(clauses, reasons, involved, case.matrix)
        if (first := by_asks.get(involved)) is None:
            fixed = tuple(map(fix_text, some))
            by_asks[involved] = Conflict(text, reasons, involved, core.minimal, fixed, hardware="" if fixed else far)
            continue
        new = [clause for clause in clauses if clause not in first.text]
        if 0 < len(new) < len(clauses):
            same_cause.setdefault(involved, []).append(" and ".join(new))
        else:
            first = replace(first, also=(*first.also, text))
        by_asks[involved] = replace(first, reasons=(*first.reasons, *reasons))
    for involved, texts in same_cause.items():  # what they share with the first is stated there, once
        by_asks[involved] = replace(by_asks[involved], also=("; ".join(texts), *by_asks[involved].also))
    return tuple(by_asks.values())


def needed_asks(case: Query, core: Core) -> tuple[Ask, ...]:
    """Return the requirements of a conflict, without those that only decide a default (a GPU, of the architecture)."""
    matrix, about = case.matrix, set[str]()
    for row in core.rows:
        if not matrix.fact(row).default:
            about |= matrix.then(row).keys()
            about |= {name for name, text in matrix.when(row).items() if "-" not in text.split(" or ")}
    asks = case.involved(core)
    return tuple(ask for ask in asks if ask.component in about) or asks


def core_reasons(case: Query, core: Core, known: Mapping[str, str]) -> tuple[Reason, ...]:
    """Return the rows of a conflict as reasons, the obstacle first. A component whose definition is among them has that
    value."""
    matrix = case.matrix
    whole = dict(known)
    for row in core.rows:
        if matrix.fact(row).kind in PRESENT_KINDS and all(name in whole for name in matrix.when(row)):
            whole |= {name: text for name, text in matrix.then(row).items() if name not in whole and " or " not in text}
    return tuple(row_reason(matrix, group[0], whole, len(group)) for group in reversed(core.groups))


def fixes_by_conflict(case: Query, found: Sequence[Core], good: PlanFilter) -> list[list[Fix]]:
    """Return the nearest changes that work, per conflict: those that resolve everything at once, else those that
    resolve it when the others are ignored. None leads to what is unknown. Other hardware is proposed only if nothing
    else helps, and never for an image."""
    found_fixes: list[list[Fix]] = [[] for _ in found]
    every = [*found, *lasting_cores(case)]
    known = rule_stages(case, known=True)
    singly = case.image or can_be_covered(case.unrelatable(), 2)  # by a change, and by what it also needs
    for at, rules in enumerate(rule_stages(case)):
        some = find_fixes(case.matrix, case.wanted, every, case.waived, good, rules=known[at]) if known else []
        if whole := prefer_plain_fixes(case, some):
            return [
                some or [fix for fix in whole if touches(fix, core)] or whole
                for some, core in pairs(found_fixes, found)
            ]
        if len(found) > 1 and singly:
            found_fixes = [some or fixes_of_one(case, core, found, rules) for some, core in pairs(found_fixes, found)]
        if all(found_fixes):
            break
    return found_fixes


def pairs(found_fixes: Sequence[list[Fix]], found: Sequence[Core]) -> Iterator[tuple[list[Fix], Core]]:
    return zip(found_fixes, found, strict=True)


def fixes_of_one(case: Query, core: Core, found: Sequence[Core], rules: Rules) -> list[Fix]:
    """Return the changes that resolve one conflict when the others are ignored."""
    others = [other for other in found if other is not core]
    plans = PLANS // len(found)
    return prefer_plain_fixes(
        case, find_fixes_of_one(case.matrix, case.wanted, core, others, case.waived, plans=plans, rules=rules)
    )


def lasting_cores(case: Query) -> list[Core]:
    """Return the requests that have to change before anything can be known: those for versions that no fact lists."""
    return [Core.of([request]) for request in unheard_requests(case.matrix, case.wanted, case.waived)]


def rule_stages(case: Query, *, known: bool = False) -> list[Rules]:
    """Return what may be proposed: first anything but other hardware; then, for a request of the command line, that as
    well. `known`: of what can lead to a plan that is known; nothing if two pairs of components are related in none."""
    pairs = case.unrelatable() if known else []
    asked = {request.component for request in case.wanted if request.id}
    left_out = frozenset.intersection(*pairs) if pairs else asked
    return [rules.fixing(asked - left_out) for rules in _rule_stages(case)] if left_out or not pairs else []


def _rule_stages(case: Query) -> list[Rules]:
    rules = spec_rules(case) if case.image else FREE
    hardware = [component.name for component in case.matrix.components if component.cost >= HARDWARE]
    same_hardware = rules.fixing(hardware)
    return [same_hardware] if case.image else [same_hardware, rules]


def spec_rules(case: Query) -> Rules:
    """Return what a user can change in the spec of an image: its layers, and its base if that is a distribution, which
    has one Python. The target is fixed, and so is the content of a third-party image."""
    matrix = case.matrix
    by_recipe: dict[str, set[str]] = {}
    for ask in case.asks:
        if ask.by.startswith("recipe "):
            by_recipe.setdefault(ask.by, set()).add(ask.component)
    ties = {name: frozenset(names - {name}) for names in by_recipe.values() for name in names}
    fixed = {ask.component for ask in case.asks if ask.by and not ask.by.startswith("recipe ")}
    fixed |= {component.name for component in matrix.components if component.hidden}
    base = next((request.mask for request in case.wanted if request.id and request.component == "base"), 0)
    if not base or not set(matrix.values_of(matrix.number["base"], base)) & DISTRIBUTIONS.keys():
        return Rules(frozenset(fixed | {"base"}), ties)
    sets = [
        {"base": matrix.bit("base", item.name), "python": matrix.bit("python", item.python)}
        for item in DISTRIBUTIONS.values()
        if has_value(matrix, "base", item.name) and has_value(matrix, "python", item.python)
    ]
    return Rules(frozenset(fixed), ties, {"base": [one for one in sets if not one["base"] & base]})


def has_value(matrix: FactTable, name: str, value: str) -> bool:
    return name in matrix.number and value in matrix.values[matrix.number[name]]


def prefer_plain_fixes(case: Query, some: list[Fix]) -> list[Fix]:
    """Return the fixes without other hardware and without components that no user requests by name, if there are any;
    else all."""

    def plain(fix: Fix) -> bool:
        components = [case.matrix.component(change.component) for change in fix.changes]
        return all(component and component.cost < HARDWARE and not component.hidden for component in components)

    return [fix for fix in some if plain(fix)] or some


def touches(fix: Fix, core: Core) -> bool:
    return any(change.component in core.components() for change in fix.changes)


def fix_text(fix: Fix) -> str:
    """``torch>=2.1``, ``torch=2.4.0 with cuda=12.1``, ``torch>=2.1, also needs driver>=580``."""
    text = " with ".join(change.text for change in fix.changes)
    return f"{text}, also needs {' with '.join(change.text for change in fix.also)}" if fix.also else text


def explain_not_newer(
    matrix: FactTable, asks: Sequence[Ask], component: str, waivers: Sequence[Waiver] = ()
) -> list[str]:
    """Return sentences on why `component` is not newer in the answer to `asks`. Raises SpecError for a component that
    does not exist."""
    case = Query.of(matrix, asks, waivers)
    if case.plan is None:
        return []
    matrix = case.matrix
    chosen = matrix.named(case.plan.assignment)
    if component not in chosen:
        raise SpecError(f"'{component}' is not part of the request", did_you_mean(component, chosen, "there are"))
    lines = []
    with undecided_as_unknown():
        newer = conflict_core.newer_value_conflicts(matrix, case.wanted, case.plan, component, case.waived)
    for value, core in newer:
        name = component_text(matrix, component, {component: value})
        given = case.involved(core)
        known = {ask.component: ask.constraint.text for ask in given}
        silent = [request.component for request in core.requests if not request.id]
        known |= {name: chosen[name] for name in silent if name in chosen}
        known |= {component: value}
        reasons = because_clauses(matrix, core, core_reasons(case, core, known), known)
        if not reasons:
            texts = join_and([f"{ask.text}{f' ({ask.by})' if ask.by else ''}" for ask in given])
            lines.append(f"{name} is not taken, because of the request for {texts}.")
        else:
            lines.append(f"{name} is not taken, because {' and '.join(reasons)}.")
    if lines:
        return lines
    taken = component_text(matrix, component, chosen)
    if chosen[component] == matrix.values[matrix.number[component]][0]:
        return [f"{taken} is the newest that the facts know."]
    return [f"{taken} is taken, because of newer ones something is unknown, or they need a condition."]
