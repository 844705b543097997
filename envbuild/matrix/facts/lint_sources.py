"""Errors in the sources and sentences of facts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from envbuild.core.errors import Finding
from envbuild.core.yaml_reader import short
from envbuild.matrix.facts.model import Component, Fact, Facts, Row
from envbuild.matrix.facts.value_match import fold_name, matches

MACHINE = "arch"  # the component whose values name machine architectures
OTHER_PLATFORM = r"(?<![a-z])(win32|win_amd64|windows|macosx?|darwin)(?![a-z])"


def check_source(fact: Fact) -> Iterator[Finding]:
    """Report a source that a reader cannot find again: it must name the document or the file, and its version."""
    source = fact.source
    if len(re.findall(r"[A-Za-z]{2,}|[0-9]+", source.where)) < 2:
        yield Finding(
            f"{fact.id}: the source '{short(source.where)}' is too vague", fact.where, "name document and version"
        )
    elif source.type in ("upstream-code", "issue") and not re.search("[0-9]", source.where):
        what = "the number of the thread" if source.type == "issue" else "a version or commit"
        yield Finding(f"{fact.id}: the source '{short(source.where)}' lacks {what}", fact.where)
    if "://" in source.where:
        yield Finding(
            f"{fact.id}: the source is an address", fact.where, "name the document, or the repository and path"
        )
    if source.type == "measured" and not source.how:
        yield Finding(f"{fact.id}: measured, but not how", fact.where, "write under how: what was run or opened")


def check_places(facts: Facts, fact: Fact) -> Iterator[Finding]:
    """Report file names and sources that name another architecture or platform than the row is about."""
    for row in fact.rows:
        for text in (fact.source.where, *_file_names(fact, row)):
            found = re.search(OTHER_PLATFORM, text.lower())
            if found and "linux" not in text.lower():
                yield Finding(f"{fact.id}: '{short(text)}' is about {found.group()}", fact.where)
            named = _machines(facts.components.get(MACHINE), text)
            own = _own_machines(facts, row)
            if named and own and not named & own:
                yield Finding(
                    f"{fact.id}: a row for {' and '.join(sorted(own))} rests on '{short(text)}',"
                    f" which is {' and '.join(sorted(named))}",
                    row.where,
                )


def _file_names(fact: Fact, row: Row) -> Iterator[str]:
    for text in (fact.source.how, fact.because, fact.condition, fact.hint, row.note):
        for word in text.split():
            if re.search(r"/|\.[a-z]{2}", word):
                yield word


def _machines(component: Component | None, text: str) -> set[str]:
    """Return the architectures that `text` names, in any spelling that the component has."""
    if component is None:
        return set()
    spellings: Mapping[str, str] = {fold_name(value): value for value in component.values} | dict(component.aliases)
    folded = fold_name(text)
    return {value for spelling, value in spellings.items() if spelling in folded}


def _own_machines(facts: Facts, row: Row) -> set[str]:
    """Return the architectures that a row is for; none when it is for all of them."""
    wanted = row.when.get(MACHINE) or row.then.get(MACHINE)
    component = facts.components.get(MACHINE)
    if wanted is None or component is None:
        return set()
    own = {value for value in component.values if matches(component, wanted, value)}
    return own if len(own) < len(component.values) else set()


def check_sentences(fact: Fact) -> Iterator[Finding]:
    """Report sentences with a full stop: they are joined to one ("Because … [id] and … [id].")."""
    for name, text in (("because", fact.because), ("condition", fact.condition)):
        if text.endswith("."):
            yield Finding(f"{fact.id}: '{name}' ends with a full stop", fact.where, "leave it out")
