#!/usr/bin/env python3
"""Refuse words that STYLE.md bans, and names that were replaced.

    python tests/prose/check.py                      the whole repository
    python tests/prose/check.py envbuild/matrix      one room (or any files and folders)
    python tests/prose/check.py --summary            counts per room
    python tests/prose/check.py --kind phrase PATH   only one list: phrase, opener, name or module

Prints `FILE:LINE: WORD -> REPLACEMENT` and ends with exit code 1 when there is something to print. The words are in
words.yaml next to this file. A string whose bytes may not change (it becomes part of an image) has the comment
`# prose: keep` on one of its lines or on the line above it. So has a name that is a key of a file format. In YAML files
(facts, images, targets) the comments and the values of some keys are prose (SENTENCES).
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from banned_words import Rules, read_rules
from prose_texts import (
    KEEP,
    Text,
    children,
    comment_lines,
    comments,
    docstrings,
    identifiers,
    quoted_names,
    strings,
    without_code,
    yaml_comment_lines,
    yaml_scalars,
)

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("envbuild", "recipes", "images", "docs", "tests", "benchmarks", ".github")
# Generated from the facts; this check, whose tests quote what it bans; files whose bytes decide the keys of units.
SKIPPED = ("docs/tables.md", "tests/prose/", "envbuild/build/plan/check_extensions.py", "recipes/data/")
# Strings in these folders are commands of units: their bytes decide the key of a unit. Only messages are prose there.
COMMANDS = ("recipes/", "envbuild/build/plan/", "envbuild/build/blocks/", "envbuild/plan/")
# Keys of facts, images and targets whose values are sentences.
SENTENCES = ("about", "because", "condition", "description", "hint", "how", "note", "reason")
# Strings in these folders quote messages, and input with mistakes.
QUOTING = ("tests/", "benchmarks/")
# Methods of the standard library's protocols (io.IOBase), whose names are not ours.
PROTOCOL = ("tell",)
KINDS = ("phrase", "opener", "name", "module")


@dataclass(frozen=True, order=True)
class Hit:
    """One banned word: its place, the word, what to write instead, and the list that bans it (one of KINDS)."""

    path: str
    line: int
    word: str
    write: str
    kind: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word} -> {self.write}"


def parts(name: str) -> list[str]:
    """Return the lower-case words of an identifier: `tell_kept` and `StandIn` have two each."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def line_of(text: Text, match: re.Match[str]) -> int:
    """Return the line of a match: within literals the first source line that has its first word."""
    if not text.lines:
        return text.line + text.value.count("\n", 0, match.start())
    word = match[0].split()[0]
    return next((text.line + number for number, line in enumerate(text.lines) if word in line), text.line)


def phrase_hits(path: str, text: Text, rules: Rules) -> Iterator[Hit]:
    """Yield the banned phrases of a text."""
    for match, write in rules.phrases.find(text.value):
        yield Hit(path, line_of(text, match), " ".join(match[0].split()), write, "phrase")


def opener_hits(path: str, owner: ast.AST, node: ast.Constant, rules: Rules) -> Iterator[Hit]:
    """Yield the docstring when its first word is banned; that of a test function may explain the rule of its name."""
    if isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef) and owner.name.startswith("test_"):
        return
    lists = [rules.openers]
    if isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef) and not is_property(owner):
        lists.append(rules.function_openers)
    for words in lists:
        if match := words.pattern.match(str(node.value)):
            yield Hit(path, node.lineno, f'docstring starts with "{match[0].strip()}"', words.write(match), "opener")


def name_hits(path: str, names: Iterator[tuple[str, int]], rules: Rules) -> Iterator[Hit]:
    """Yield the identifiers that have a banned part."""
    for name, line in names:
        if name in PROTOCOL:
            continue
        table = rules.test_names if name.startswith("test_") else rules.names
        for part in [part for part in parts(name) if part in table][:1]:
            yield Hit(path, line, name, f"{part}: {table[part]}" if table is rules.test_names else table[part], "name")


def module_hits(path: str, source: str, rules: Rules) -> Iterator[Hit]:
    """Yield old module names, dotted or as paths, and the files that still have one."""
    dotted = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    for old, new in rules.old_modules.items():
        if path.endswith(".py") and (dotted == old or dotted.startswith(old + ".")):
            yield Hit(path, 1, old, new, "module")
    found = list(rules.modules.find(source))
    if path.endswith(".md"):  # pages leave `envbuild/` out; `plan/bridge.py` is a path, a lone `plan` a word
        found += [(match, write) for match, write in rules.paths.find(source) if "/" in match[0]]
    for match, write in found:
        yield Hit(path, source.count("\n", 0, match.start()) + 1, match[0], write, "module")


def check_python(path: str, source: str, rules: Rules) -> Iterator[Hit]:
    """Yield the hits of a Python file; not of the strings of tests and benchmarks, which quote."""
    tree = ast.parse(source)
    nodes: list[ast.AST] = [tree]
    for node in nodes:
        nodes += children(node)
    lines = source.splitlines()
    defined = list(identifiers(nodes))
    kept = {name for name, line in defined if KEEP in lines[line - 1]}
    yield from name_hits(path, ((name, line) for name, line in defined if name not in kept), rules)
    yield from module_hits(path, source, rules)
    for comment in comments(comment_lines(source)):
        yield from phrase_hits(path, comment, rules)
    for owner, node in docstrings(nodes):
        yield from phrase_hits(path, Text(without_code(str(node.value)), node.lineno), rules)
        quoted = quoted_names(str(node.value), node.lineno)
        yield from name_hits(path, ((name, line) for name, line in quoted if name not in kept), rules)
        yield from opener_hits(path, owner, node, rules)
    if path.startswith(QUOTING):
        return
    for literal in strings(tree, source.splitlines(), path.startswith(COMMANDS)):
        yield from phrase_hits(path, literal, rules)


def check_yaml(path: str, source: str, rules: Rules) -> Iterator[Hit]:
    """Yield the hits of facts, images and targets: in comments, and in the values of `SENTENCES`."""
    lines = source.splitlines()
    scalars = list(yaml_scalars(yaml.compose(source, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))))
    for key, node in scalars:
        first, last = node.start_mark.line, node.end_mark.line
        if key in SENTENCES and not any(KEEP in line for line in lines[max(first - 1, 0) : last + 1]):
            text = Text(without_code(node.value), first + 1, tuple(lines[first : last + 1]))
            yield from phrase_hits(path, text, rules)
    for comment in comments(yaml_comment_lines(lines, [node for _, node in scalars])):
        yield from phrase_hits(path, comment, rules)


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function is read as an attribute, so that a noun may describe it."""
    decorators = [ast.unparse(decorator).split(".")[-1] for decorator in function.decorator_list]
    return "property" in decorators or "cached_property" in decorators


def check_markdown(path: str, source: str, rules: Rules) -> Iterator[Hit]:
    """Yield the hits of a page of documentation."""
    yield from phrase_hits(path, Text(without_code(source), 1), rules)
    yield from module_hits(path, source, rules)
    if path == "STYLE.md":  # its examples are the names that it replaces
        return
    yield from name_hits(path, quoted_names(source, 1), rules)


READERS = {".py": check_python, ".md": check_markdown, ".yaml": check_yaml}


def files(paths: list[str]) -> Iterator[Path]:
    """Yield the Python, YAML and Markdown files below the given paths, or all that the repository has."""
    everything = [*sorted(ROOT.glob("*.md")), *(ROOT / folder for folder in FOLDERS)]
    for start in [Path(path).resolve() for path in paths] or everything:
        if not start.exists():
            sys.exit(f"{start} does not exist")
        for path in sorted(start.rglob("*")) if start.is_dir() else [start]:
            if path.suffix in READERS and "__pycache__" not in path.parts:
                yield path


def check(path: Path, root: Path = ROOT, rules: Rules | None = None) -> list[Hit]:
    """Return the hits of one file, in order of their lines."""
    relative = path.relative_to(root).as_posix()
    if relative.startswith(SKIPPED) or (path.suffix == ".yaml" and relative.startswith(QUOTING)):
        return []
    reader = READERS[path.suffix]
    return sorted(set(reader(relative, path.read_text(encoding="utf-8"), rules or read_rules())))


def room(path: str) -> str:
    """Return the room of a path: the first folder below envbuild/, the module itself, or the top folder."""
    pieces = path.split("/")
    return "/".join(pieces[:2]) if pieces[0] == "envbuild" else pieces[0]


def summary(hits: list[Hit]) -> str:
    """Return counts per room and kind, the largest first."""
    counts = Counter((room(hit.path), hit.kind) for hit in hits)
    rooms = Counter(room(hit.path) for hit in hits)
    rows = [("room", *(kind + "s" for kind in KINDS), "all")]
    rows += [(name, *(str(counts[name, kind]) for kind in KINDS), str(total)) for name, total in rooms.most_common()]
    rows.append(("all", *(str(sum(hit.kind == kind for hit in hits)) for kind in KINDS), str(len(hits))))
    return "\n".join(f"{row[0]:<32}" + "".join(f"{cell:>10}" for cell in row[1:]) for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description="Refuse the words that STYLE.md bans.")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files and folders; default: the whole repository")
    parser.add_argument("--summary", action="store_true", help="print counts per room only")
    parser.add_argument("--kind", action="append", choices=KINDS, help="print only these (may be repeated)")
    arguments = parser.parse_args()
    kinds = arguments.kind or KINDS
    hits = [hit for path in files(arguments.paths) for hit in check(path) if hit.kind in kinds]
    if arguments.summary:
        print(summary(hits))
    else:
        print(*hits, sep="\n", end="\n" if hits else "")
    return 1 if hits else 0


if __name__ == "__main__":
    sys.exit(main())
