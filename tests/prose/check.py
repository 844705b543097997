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
import functools
import io
import re
import string
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
WORDS = Path(__file__).with_name("words.yaml")
FOLDERS = ("envbuild", "recipes", "images", "docs", "tests", "benchmarks")
# Generated from the facts; this check, whose tests quote what it bans; files whose bytes decide the keys of units.
SKIPPED = ("docs/tables.md", "tests/prose/", "envbuild/build/plan/check_extensions.py", "recipes/data/")
# Strings in these folders are commands of units: their bytes decide the key of a unit. Only messages are prose there.
COMMANDS = ("recipes/", "envbuild/build/plan/", "envbuild/build/blocks/", "envbuild/plan/")
# Keys of facts, images and targets whose values are sentences.
SENTENCES = ("about", "because", "condition", "description", "hint", "how", "note", "reason")
MESSAGE = re.compile(r"(Error|Finding|Refusal|Option|Argument|Typer|command|info|warn|debug)$")
# Strings in these folders quote messages, and input with mistakes.
QUOTING = ("tests/", "benchmarks/")
KEEP = "# prose: keep"
# Methods of the standard library's protocols (io.IOBase), whose names are not ours.
PROTOCOL = ("tell",)
LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
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


@dataclass(frozen=True)
class Text:
    """A piece of prose and the line where it starts; `lines` is the source that it comes from, to place a match."""

    value: str
    line: int
    lines: tuple[str, ...] = ()


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


def parts(name: str) -> list[str]:
    """Return the lower-case words of an identifier: `tell_kept` and `StandIn` have two each."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def without_code(text: str) -> str:
    """Blank fenced blocks, text between backticks, link targets and HTML comments; every line stays where it is."""
    blank = lambda match: re.sub(r"[^\n]", " ", match[0])  # noqa: E731
    for pattern in (r"^( *)(```|~~~).*?^ *\2", r"``.+?``", r"`[^`]+`", r"\]\([^)]*\)", r"<!--.*?-->", r"https?://\S+"):
        text = re.sub(pattern, blank, text, flags=re.DOTALL | re.MULTILINE)
    return text


def comments(lines: list[str]) -> Iterator[Text]:
    """Yield the comments (one per line, or ""); consecutive ones as one, so that phrases over two lines are found."""
    block: list[str] = []
    last = 0
    for number, line in enumerate(lines, 1):
        if line and block and number == last + 1:
            block.append(line)
        elif line:
            if block:
                yield Text(without_code("\n".join(block)), last - len(block) + 1)
            block = [line]
        last = number if line else last
    if block:
        yield Text(without_code("\n".join(block)), last - len(block) + 1)


def comment_lines(source: str) -> list[str]:
    """Return the comment of each line, or an empty string."""
    lines = [""] * (source.count("\n") + 2)
    if "#" in source:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT and not token.string.startswith(("#!", KEEP)):
                lines[token.start[0] - 1] = token.string[1:]
    return lines


def children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below a node, without those that say whether a name is read or written."""
    for value in vars(node).values():
        if isinstance(value, list):
            yield from (one for one in value if isinstance(one, ast.AST))
        elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
            yield value


def docstrings(nodes: list[ast.AST]) -> Iterator[tuple[ast.AST, ast.Constant]]:
    """Yield each definition that has a docstring, with it."""
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            match node.body[0]:
                case ast.Expr(value=ast.Constant(value=str()) as text):
                    yield node, text


def strings(node: ast.AST, lines: list[str], only_messages: bool, inside: bool = False) -> Iterator[Text]:
    """Yield the string literals that a user may read: no patterns, no operands of comparisons, no docstrings."""
    if isinstance(node, ast.Compare) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        if called.startswith("re."):
            return
        inside = inside or bool(MESSAGE.search(called))
    inside = inside or isinstance(node, ast.Raise)
    value = ""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        value = node.value
    if isinstance(node, ast.JoinedStr):
        value = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    if value:
        first, last = node.lineno, node.end_lineno or node.lineno  # type: ignore[attr-defined]
        kept = any(KEEP in line for line in lines[max(first - 2, 0) : last])
        if " " in value.strip() and (inside or not only_messages) and not kept:
            yield Text(value, first, tuple(lines[first - 1 : last]))
    for child in children(node):
        if not (isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant)):
            yield from strings(child, lines, only_messages, inside)


def identifiers(nodes: list[ast.AST]) -> Iterator[tuple[str, int]]:
    """Yield the names that a file defines."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname, node.lineno


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


def yaml_scalars(node: yaml.Node | None, key: str = "") -> Iterator[tuple[str, yaml.ScalarNode]]:
    """Yield (key, node) of every scalar: items of a list have the key of the list, keys themselves have none."""
    if isinstance(node, yaml.ScalarNode):
        yield key, node
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from yaml_scalars(item, key)
    elif isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            yield "", name
            yield from yaml_scalars(value, name.value)


def yaml_comment_lines(lines: list[str], scalars: list[yaml.ScalarNode]) -> list[str]:
    """Return the comment of each line, or an empty string. A `#` within a scalar begins none."""
    rest = list(lines)
    for node in scalars:
        first, last = node.start_mark, node.end_mark
        for number in range(first.line, min(last.line + 1, len(rest))):
            start = first.column if number == first.line else 0
            end = last.column if number == last.line else len(rest[number])
            rest[number] = rest[number][:start] + "x" * (end - start) + rest[number][end:]
    found = (re.search(r"(?:^|\s)#(.*)", line) for line in rest)
    return [match[1] if match and not match[0].lstrip().startswith(KEEP) else "" for match in found]


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


def quoted_names(text: str, line: int) -> Iterator[tuple[str, int]]:
    """Yield the identifiers in backticks of a text that starts at `line`."""
    for match in re.finditer(r"(?<!`)`([A-Za-z_]\w*)(?:\(\))?`(?!`)", text):
        yield match[1], text.count("\n", 0, match.start()) + line


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
