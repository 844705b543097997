"""A compiled matrix on disk, so that a query needs neither YAML nor the reading of constraints.

``$XDG_CACHE_HOME/envbuild/matrix/<key>.json`` (or below ``~/.cache``): one line with a checksum of the rest, then JSON.
The key covers the bytes and names of the fact files and this package's code, so that an entry never has to be judged
old. A cache that cannot be read or written is ignored: nothing here raises."""

from __future__ import annotations

import contextlib
import json
import os
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from envbuild.core.errors import SpecError
from envbuild.core.gc_pause import gc_paused
from envbuild.matrix import fact_files, read_fact_file
from envbuild.matrix.facts.atoms import Atom
from envbuild.matrix.facts.fact_table import CompiledRow, FactTable
from envbuild.matrix.facts.model import Component, Fact, Question, Source
from envbuild.matrix.facts.precedence import Box

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
FORMAT = 1
MAX_ENTRIES = 8  # each project with facts of its own has one, and every change of a fact makes another


def cache_key(folders: Sequence[Path]) -> str:
    """Return the key of everything that the compiled form of these fact files depends on; empty when they cannot be
    read."""
    whole = blake2b(f"envbuild matrix {FORMAT}\n{_current(folders)}\n".encode(), digest_size=20)
    try:
        for folder in folders:
            whole.update(f"{folder.absolute()}\n".encode())
            for path in fact_files(folder):
                _add(whole, path)
    except (OSError, SpecError):
        return ""
    for path in code_files():  # where the code cannot be read as files, its format number replaces it
        with contextlib.suppress(SpecError):
            _add(whole, path)
    return whole.hexdigest()


def code_files() -> list[Path]:
    """Return the modules that read and compile facts: those of this folder, and what they use of the solver's."""
    here = Path(__file__).parent
    return [*sorted(here.glob("*.py")), *sorted((here.parent / "sat").glob("*.py"))]


def entry_path(folder: Path | None, key: str) -> Path | None:
    """Return the path of the entry of `key`; None when this user has no folder for it. `folder` None: the user's
    cache."""
    if folder is None:
        home = os.environ.get("XDG_CACHE_HOME", "")
        if not home.startswith("/"):  # the XDG base directory specification: relative paths are to be ignored
            try:
                home = str(Path.home() / ".cache")
            except RuntimeError:
                return None
        folder = Path(home) / "envbuild" / "matrix"
    return folder / f"{key}.json"


def read_entry(path: Path) -> FactTable | None:
    """Return the fact table of an entry; None when it is missing or damaged."""
    try:
        head, _, body = path.read_bytes().partition(b"\n")
        if head != checksum(body):
            return None
        with gc_paused():
            matrix = _from_json(json.loads(body))
    except (OSError, ValueError, TypeError, LookupError):
        return None
    mark_used(path)
    return matrix


def mark_used(path: Path) -> bool:
    """Make an entry the newest one, so that others are deleted before it. Return whether it exists."""
    try:
        os.utime(path)
    except OSError:  # missing, or another user's
        return path.exists()
    return True


def write_entry(path: Path, matrix: FactTable) -> None:
    """Store `matrix` as an entry, and delete all but the entries that were used last."""
    body = json.dumps(_to_json(matrix), separators=(",", ":")).encode()
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{time.monotonic_ns()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(checksum(body) + b"\n" + body)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        entries = sorted(path.parent.glob("*.json"), key=lambda entry: entry.stat().st_mtime, reverse=True)
        for entry in entries[MAX_ENTRIES:]:
            entry.unlink(missing_ok=True)
    except OSError:
        return


def _add(whole: Any, path: Path) -> None:
    data = read_fact_file(path)
    whole.update(f"{path.name} {len(data)}\n".encode() + data)


def _current(folders: Iterable[Path]) -> str:
    """Return the current folder, where it matters: the positions in files below it are relative to it."""
    try:
        here = Path.cwd()
    except OSError:
        return ""
    return str(here) if any(folder.absolute().is_relative_to(here) for folder in folders) else ""


def checksum(body: bytes) -> bytes:
    return f"envbuild matrix {FORMAT} {zlib.crc32(body):08x} {len(body)}".encode()


def _to_json(matrix: FactTable) -> dict[str, Any]:
    """Return the JSON of a table, with long lists as columns: thousands of small lists take three times as long to
    read."""
    atoms, rows = matrix.atoms, matrix.rows
    return {
        "components": [{**_fields(component), "aliases": dict(component.aliases)} for component in matrix.components],
        "values": matrix.values,
        "questions": [_fields(question) for question in matrix.questions.values()],
        "facts": [{**_fields(fact), "source": _fields(fact.source)} for fact in matrix.facts],
        "atoms": [
            [atom.component for atom in atoms],
            [atom.text for atom in atoms],
            [atom.terms for atom in atoms],
            [f"{atom.sure:x}" for atom in atoms],
        ],
        "maybe": [[at, f"{atom.maybe:x}"] for at, atom in enumerate(atoms) if atom.maybe],
        "rows": [
            [row.fact for row in rows],
            *_chained(row.when for row in rows),
            *_chained(row.then for row in rows),
            [row.where for row in rows],
            [row.note for row in rows],
        ],
        "narrowed": [[*pair, _boxes(boxes)] for pair, boxes in matrix.narrowed.items()],
        "groups": [[rows, _boxes(boxes)] for rows, boxes in matrix.groups],
        "arising": matrix.arising,
        "independent": _by_content(matrix.independent),
        "through": _by_content(matrix.through),
        "known_to": matrix.known_to,
        "digest": matrix.digest,
    }


def _from_json(plain: dict[str, Any]) -> FactTable:
    questions = [_restored(Question, given) for given in plain["questions"]]
    numbers, texts, terms, sure = plain["atoms"]
    atoms = [Atom(*atom, 0) for atom in zip(numbers, texts, terms, (int(mask, 16) for mask in sure), strict=True)]
    for at, mask in plain["maybe"]:
        atoms[at] = atoms[at]._replace(maybe=int(mask, 16))
    facts, when, when_ends, then, then_ends, wheres, notes = plain["rows"]
    parts = (facts, _parts(when, when_ends), _parts(then, then_ends), wheres, notes)
    return FactTable(
        components=tuple(_restored(Component, given) for given in plain["components"]),
        values=tuple(map(tuple, plain["values"])),
        questions={question.id: question for question in questions},
        facts=tuple(_restored(Fact, {**given, "source": Source(**given["source"])}) for given in plain["facts"]),
        atoms=tuple(atoms),
        rows=tuple(map(CompiledRow._make, zip(*parts, strict=True))),
        narrowed={(row, component): _unboxed(boxes) for row, component, boxes in plain["narrowed"]},
        groups=tuple((tuple(rows), _unboxed(boxes)) for rows, boxes in plain["groups"]),
        independent={(one, other): why for why, pairs in plain["independent"] for one, other in pairs},
        through={(one, other): tuple(others) for others, pairs in plain["through"] for one, other in pairs},
        known_to=plain["known_to"],
        digest=plain["digest"],
        arising=plain["arising"],
    )


def _by_content(pairs: Mapping[tuple[int, int], T]) -> list[tuple[T, list[tuple[int, int]]]]:
    """Return each content with its pairs: many share one."""
    found: dict[T, list[tuple[int, int]]] = {}
    for pair, content in pairs.items():
        found.setdefault(content, []).append(pair)
    return list(found.items())


def _chained(lists: Iterable[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Return (all lists one after the other, the end of each)."""
    whole: list[int] = []
    ends = []
    for part in lists:
        whole += part
        ends.append(len(whole))
    return whole, ends


def _parts(whole: list[int], ends: list[int]) -> list[list[int]]:
    return [whole[start:end] for start, end in pairwise([0, *ends])]


def _fields(item: DataclassInstance) -> dict[str, Any]:
    """Return the fields that differ from the defaults."""
    given = {part.name: getattr(item, part.name) for part in fields(item)}
    return {part.name: given[part.name] for part in fields(item) if given[part.name] != part.default}


def _restored(kind: type[T], given: dict[str, Any]) -> T:
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})


def _boxes(boxes: Iterable[Box]) -> list[list[tuple[int, str]]]:
    return [[(component, f"{mask:x}") for component, mask in box.items()] for box in boxes]


def _unboxed(boxes: Iterable[Iterable[tuple[int, str]]]) -> list[Box]:
    return [{component: int(mask, 16) for component, mask in box} for box in boxes]
