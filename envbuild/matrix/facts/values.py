"""Values and constraints of components, as fact files and users write them.

Versions: ``2.8`` (that and all that begin with it), ``==2.8.0+cu128``, ``!=``, ``>=``, ``>``, ``<=``, ``<``,
``~=2.8.1`` (at least that, and in 2.8), ``==2.8.*``; a comma means and. Names: ``H100``, ``!=H100``, ``ubuntu*``.
Compute capabilities: ``9.0``, ``sm_90``, ``>=8.0``, or what code was compiled for: ``{cubins: ["80", "90a"], ptx:
["90"]}``. All: ``*`` present, ``-`` absent."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from functools import lru_cache

from envbuild.core.errors import SpecError
from envbuild.core.text import human_list
from envbuild.core.yaml_reader import did_you_mean, nearest, short
from envbuild.matrix.facts import version
from envbuild.matrix.facts.model import Component, Constraint, Term
from envbuild.matrix.facts.not_covered import hint_component_not_covered, hint_not_covered
from envbuild.matrix.facts.value_match import ORDER, fold_name

OPERATORS = r"(===|==|!=|~=|>=|<=|>|<|=)?\s*(.*)"
MAX_NAMES = 12  # names that a hint lists
LIKENESS = 0.7  # of a name that a hint proposes, difflib's, from 0 to 1


class InvalidValueError(ValueError):
    """An invalid value, constraint or request; `args` are the message and a hint that can be typed (may
    be empty)."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message, self.hint = message, hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


def normalize_value(component: Component, text: str) -> str:
    """Return the value that `text` means: aliases replaced, numbers beyond the component's precision removed, ``sm_90``
    as ``9.0``. Raise InvalidValueError."""
    text = text.strip()
    if component.kind == "sm":
        number, variant = _capability(text)
        if variant:
            raise InvalidValueError(
                f"'{short(text)}' is what code is compiled for, not what a GPU is", f"write {number}"
            )
        return number
    if component.kind == "name":
        return _named(component, text)
    return version.truncate(_version_text(component, text), component.precision)


def parse_constraint(
    component: Component, given: str | Iterable[str] | Mapping[str, Iterable[str]], *, asked: bool = False
) -> Constraint:
    """Return the constraint of `given`: one text, a list of texts (any of them), or the architectures of compiled code.

    `asked`: a user's request, in which a bare version of an `exact` component is that version alone. Raise
    InvalidValueError.
    """
    if isinstance(given, Mapping):
        return _compiled(component, given)
    if isinstance(given, str):
        return _text(component, given, asked)
    return join_constraints([_text(component, text, asked) for text in given])


def join_constraints(parts: Iterable[Constraint]) -> Constraint:
    """Return the constraint that allows what any of `parts` allows. Raise InvalidValueError for none."""
    given = tuple(parts)
    if not given:
        raise InvalidValueError("an empty list allows nothing", 'write "-" for absent')
    alternatives = dict.fromkeys(terms for part in given for terms in part.alternatives)
    return Constraint(tuple(alternatives), " or ".join(dict.fromkeys(part.text for part in given)))


def neighbours(component: Component, text: str) -> tuple[str, str] | None:
    """Return the known versions just below and just above one that is not known; None for one that is older or newer
    than all, is known, or has no order. Labels and pre-releases are neighbours only of their like."""
    if component.kind != "version" or not version.is_comparable(text):
        return None
    labelled, early, place = "+" in text, version.is_prerelease(text), version.key(text)
    known = [value for value in component.values if version.is_comparable(value)]
    known = [value for value in known if ("+" not in value or labelled) and (early or not version.is_prerelease(value))]
    keys = {version.key(value): value for value in known}
    below = max((key for key in keys if key < place), default=None)
    above = min((key for key in keys if key > place), default=None)
    if place in keys or below is None or above is None:
        return None
    return keys[below], keys[above]


def split_request(text: str, known: Container[str] = ()) -> tuple[str, str]:
    """Return (component, constraint) of a word such as ``torch=2.0.1``, ``torch>=2.1,<2.8``, ``gpu=RTX 4090``, ``apex``
    (it is present). Raise InvalidValueError; `known` are components, for its hint."""
    match = re.fullmatch(rf"\s*([A-Za-z][A-Za-z0-9_-]*)?\s*{OPERATORS}", text, re.DOTALL)
    name, op, rest = match.groups() if match and text.isprintable() else ("", "", text)
    name, op, rest = (name or "").lower().replace("_", "-"), op or "", rest.strip()
    if not name:
        raise InvalidValueError(f"'{short(text)}' names no component", "write component=version: torch=2.8")
    if not op and rest:
        given = short(rest.lstrip(":@= "))
        sure = name in known or given[:1].isdigit()
        hint = f"write {name}={given}" if sure else "write component=version: torch=2.8; the images: envbuild list"
        raise InvalidValueError(f"'{short(text)}' is not a request", hint)
    if op and not rest:
        raise InvalidValueError(
            f"'{short(text)}' has nothing after '{op}'", f"write {name}{op}VERSION, or {name} alone"
        )
    if op == "=" and rest[0] in "<>" and rest[1:2] != "=":
        raise InvalidValueError(f"'{short(text)}' has '={rest[0]}'", f"write {name}{rest[0]}={short(rest[1:].strip())}")
    return name, rest if op == "=" else f"{op}{rest}" or "*"


def parse_request(text: str, components: Mapping[str, Component]) -> tuple[Component, Constraint]:
    """Return the request of a word of a command line. Raise SpecError for an unknown component or value."""
    try:
        name, wanted = split_request(text, components)
        if name not in components:
            known = [component.name for component in components.values() if not component.hidden]
            hint = hint_component_not_covered(name) or did_you_mean(name, known, "the components are")
            raise InvalidValueError(f"no component is called '{short(name)}'", hint)
        return components[name], parse_constraint(components[name], wanted, asked=True)
    except InvalidValueError as error:
        raise SpecError(error.message, error.hint) from None


# --- reading


@lru_cache(maxsize=1 << 14)
def _parts(text: str) -> tuple[tuple[str, str], ...]:
    """Return (operator, operand) of each part between commas."""
    found = []
    for part in text.split(","):
        match = re.fullmatch(OPERATORS, part.strip(), re.DOTALL)
        assert match is not None  # anything matches
        found.append((match[1] or "", match[2].strip()))
    return tuple(found)


def _text(component: Component, text: str, asked: bool) -> Constraint:
    if text.strip() in ("*", "-"):
        return Constraint(((Term("any" if text.strip() == "*" else "none"),),), text.strip())
    terms: list[Term] = []
    for op, operand in _parts(text):
        if not operand:
            what = f"nothing after '{op}'" if op else "nothing beside a comma" if "," in text else "no value"
            raise InvalidValueError(f"'{short(text)}' has {what}", _example(component))
        if op == "=":
            raise InvalidValueError(f"'{short(text)}' has =, which is not a comparison", f"write =={short(operand)}")
        terms += READERS[component.kind](component, "==" if op == "===" else op, operand, asked)
    if len(terms) > 1 and all(term.op in ("in", "is") for term in terms):
        hint = "a comma means and; alternatives are a list in a fact file"
        raise InvalidValueError(f"'{short(text)}' would have to be several things at once", hint)
    return Constraint((tuple(dict.fromkeys(terms)),), text.strip())


def _version(component: Component, op: str, operand: str, asked: bool) -> list[Term]:
    prefix, star = (operand[:-2], True) if operand.endswith(".*") else (operand, False)
    if star and op not in ("", "=="):
        hint = f"write <{prefix} or >{prefix}" if op == "!=" else f"write {op}{prefix}"
        raise InvalidValueError(f"'{short(op + operand)}' compares with many versions", hint)
    full = _version_text(component, prefix)
    cut = version.truncate(full, component.precision)
    labelled = "+" in cut
    if op == "~=":
        numbers = version.parse(full).text.split(".")
        if len(numbers) < 2 or labelled:
            raise InvalidValueError(
                f"'{full}' cannot follow ~=", f"write ~=X.Y, or {numbers[0]} for all that begin with it"
            )
        parts = _version(component, ">=", full, asked) + _version(component, "", ".".join(numbers[:-1]), False)
        return [term for term in parts if term.op != "any"]
    if labelled and (op in ORDER or star):
        raise InvalidValueError(f"'{full}' has a local label, and labels have no order", f"write =={full}")
    if op == "" or star:
        exact = not star and (labelled or (asked and component.exact))
        return [Term("==" if exact else "in", cut)]
    if full == cut:
        return [Term(op, cut)]
    return [_widened(op, full, cut)]


def _version_text(component: Component, text: str) -> str:
    lower = text.lower().replace("~amzn", "amzn")  # packages of four of Amazon's builds of libfabric have a tilde
    try:
        version.parse(lower)
    except ValueError as error:
        raise InvalidValueError(f"'{short(text)}' {error} of {component.name}", _example(component)) from None
    # the first package of a version, as NVIDIA also calls its releases: v2.21.5-1 of NCCL is 2.21.5
    return re.sub(r"^([\d.]+)-1$", r"\1", lower.removeprefix("v"))


def _widened(op: str, full: str, cut: str) -> Term:
    """Return a comparison with no more numbers than the component has. It holds for 3.9 when it holds for any 3.9.x:
    ``<3.9.2`` is ``<=3.9``, ``!=3.9.7`` allows everything."""
    if op == "!=":
        return Term("any")
    if op == "<" and version.public_key(full) <= version.public_key(cut):
        return Term("<", cut)
    return Term({"<": "<=", ">": ">="}.get(op, op), cut)


def _name(component: Component, op: str, operand: str, asked: bool) -> list[Term]:
    if op not in ("", "==", "!="):
        hint = f"write {short(operand)} or !={short(operand)}"
        raise InvalidValueError(f"'{short(op + operand)}': {component.name} is a name, and names have no order", hint)
    if operand.endswith("*"):
        if op:
            raise InvalidValueError(f"'{short(op + operand)}' compares with many names", f"write {short(operand)}")
        beginning = operand[:-1].strip()
        if not any(fold_name(value).startswith(fold_name(beginning)) for value in component.values):
            raise InvalidValueError(
                f"no known {component.name} begins with '{short(beginning)}'", _known(component, beginning)
            )
        return [Term("in", beginning)]
    return [Term("!=" if op == "!=" else "is", _named(component, operand))]


def _sm(component: Component, op: str, operand: str, asked: bool) -> list[Term]:
    if op == "~=":
        raise InvalidValueError(f"'{short(operand)}' cannot follow ~=", "write >=8.0,<9.0")
    return [Term(op or "==", normalize_value(component, operand))]


READERS = {"version": _version, "name": _name, "sm": _sm}


def _compiled(component: Component, given: Mapping[str, Iterable[str]]) -> Constraint:
    """Return the constraint of code compiled for these architectures: it runs where any of the cubins or any of the PTX
    does."""
    if component.kind != "sm":
        raise InvalidValueError(
            f"'{component.name}' cannot have keys, as only compute capabilities can", _example(component)
        )
    if unknown := [key for key in given if key not in ("cubins", "ptx")]:
        raise InvalidValueError(
            f"unknown key '{short(unknown[0])}' of compiled code",
            did_you_mean(unknown[0], ("cubins", "ptx"), "its keys are"),
        )
    terms, names = [], []
    for key, op, words in (("cubins", "cubin", "sm_{}"), ("ptx", "ptx", "PTX of sm_{}")):
        for text in given.get(key, ()):
            number, variant = _capability(text)
            terms.append(Term(op, number + variant))
            names.append(words.format(number.replace(".", "") + variant))
    if not terms:
        raise InvalidValueError("no architecture at all", 'write "-" when the code runs on no GPU')
    return Constraint(tuple((term,) for term in dict.fromkeys(terms)), ", ".join(dict.fromkeys(names)))


@lru_cache(maxsize=1 << 10)
def _capability(text: str) -> tuple[str, str]:
    """Return ("9.0", "a") for ``90a``, ``sm_90a``, ``9.0a``, ``compute_90a``."""
    pattern = r"(?:sm_?|compute_)?(?:([0-9]{1,2})([0-9])|([0-9]{1,2})\.([0-9]))([af]?)"
    match = re.fullmatch(pattern, text.strip().lower())
    if match is None or not text.isascii():
        raise InvalidValueError(f"'{short(text)}' is not a compute capability", "write it as 9.0 or sm_90")
    major, minor = match[1] or match[3], match[2] or match[4]
    return f"{int(major)}.{minor}", match[5]


# --- names


def _named(component: Component, text: str) -> str:
    folded = fold_name(text)
    if folded in component.aliases:
        return component.aliases[folded]
    for value in component.values:
        if fold_name(value) == folded:
            return value
    raise InvalidValueError(f"no {component.name} is called '{short(text)}'", _known(component, text))


def _known(component: Component, text: str) -> str:
    """Return a hint with the closest name in any case, or with the first few."""
    if hint := hint_not_covered(component.name, text[:100]):
        return hint
    spelled = {value.casefold(): value for value in component.values}
    if text and (close := nearest(text, spelled, LIKENESS)):
        return f"did you mean '{spelled[close]}'?"
    rest = f" (envbuild matrix show {component.name})" if len(component.values) > MAX_NAMES else ""
    return f"known are: {human_list(component.values, MAX_NAMES)}{rest}"


def _example(component: Component) -> str:
    """Return a hint that shows a value of this component."""
    if component.kind == "sm":
        return "write it as 9.0 or sm_90"
    if component.kind == "name":
        return _known(component, "")
    newest = next((value for value in component.values), "")
    return f"write it as {newest}" if newest else ""
