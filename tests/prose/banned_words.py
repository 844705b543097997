"""The words of words.yaml as patterns, each with its replacement."""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

WORDS = Path(__file__).with_name("words.yaml")
LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


@dataclass(frozen=True)
class Words:
    """Patterns as one regular expression, with what to write instead of each. `quick` finds the same places sooner: it
    has no groups and knows small letters alone."""

    pattern: re.Pattern[str]
    writes: tuple[str, ...]
    quick: re.Pattern[str]

    @classmethod
    def compile(cls, form: str, rows: Mapping[str, str], flags: int = 0) -> Words:
        """Return the patterns of a table, each put into `form`."""
        groups = "|".join(f"(?P<r{number}>{row})" for number, row in enumerate(rows))
        return cls(
            re.compile(form % groups.replace(" ", r"\s+"), flags),
            tuple(rows.values()),
            re.compile(form % "|".join(rows).replace(" ", r"\s+")),
        )

    def find(self, text: str) -> Iterator[tuple[re.Match[str], str]]:
        """Yield each match with what to write instead."""
        plain = text.translate(LOWER) if self.pattern.flags & re.IGNORECASE else text
        at = 0
        while found := self.quick.search(plain, at):
            at = found.end()
            if match := self.pattern.match(text, found.start()):
                yield match, self.write(match)
                at = match.end()

    def write(self, match: re.Match[str]) -> str:
        """Return what to write instead of a match."""
        assert match.lastgroup is not None
        return self.writes[int(match.lastgroup[1:])]


@dataclass(frozen=True)
class Rules:
    """The lists of words.yaml, compiled."""

    phrases: Words
    openers: Words
    function_openers: Words
    names: dict[str, str]
    test_names: dict[str, str]
    modules: Words
    paths: Words
    old_modules: dict[str, str]


@functools.cache
def read_rules(path: Path = WORDS) -> Rules:
    """Read and compile the lists."""
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    modules = {old.removeprefix("envbuild.").replace(".", "[./]"): new for old, new in data["modules"].items()}
    return Rules(
        phrases=Words.compile(r"(?<![\w'’-])(?:%s)(?![\w-])", data["phrases"], re.IGNORECASE),
        openers=Words.compile(r"\s*(?:%s)\b", data["docstring_openers"]),
        function_openers=Words.compile(r"\s*(?:%s)\b", data["function_openers"]),
        names=single_words(data["names"]),
        test_names=single_words(data["names"]) | single_words(data["test_names"]),
        modules=Words.compile(r"envbuild[./](?:%s)(?![\w/-])", modules),
        paths=Words.compile(r"(?<![\w./-])(?:%s)(?:\.py\b|(?=\.\w)|(?![\w/-]))", modules),
        old_modules=data["modules"],
    )


def single_words(rows: Mapping[str, str]) -> dict[str, str]:
    """Return each word of a table with what to write instead."""
    return {word: write for words, write in rows.items() for word in words.split("|")}
