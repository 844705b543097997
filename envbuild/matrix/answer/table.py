"""The tables of `envbuild matrix show`: each version of a component with the values that the facts allow beside it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from envbuild.core.errors import SpecError
from envbuild.core.result import Result
from envbuild.core.text import table
from envbuild.core.yaml_reader import did_you_mean
from envbuild.matrix.facts.atoms import ABSENT
from envbuild.matrix.facts.claims import row_claim
from envbuild.matrix.facts.compile import load_fact_table
from envbuild.matrix.facts.evaluate import evaluate_rows
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.model import Constraint, Term
from envbuild.matrix.facts.value_order import ascending_bits
from envbuild.matrix.solve.phrasing import value_text
from envbuild.matrix.solve.query import Query
from envbuild.matrix.solve.request import Ask, parse_request

PAGE = """\
# Tables

Made from the facts by `make tables` (`envbuild matrix show --markdown`); a test compares. A cell is what all facts
together leave of a component beside the first column, on amd64: `/` precedes what facts also require but does not bind
(a driver that is native to a CUDA, where an older one runs it by minor-version compatibility). An empty cell means
that no fact narrows it, `none` that they exclude it. Where a fact comes from: `envbuild check torch=2.8.0 --json`."""
TABLES: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    (
        "torch, wheels of the package index",
        "torch",
        ("channel=index",),
        "`sm` are the GPUs that the wheel has code for.",
    ),
    ("CUDA toolkit", "cuda", (), "`sm` are the GPUs that code of its compiler runs on, `gcc` the host compilers."),
    ("GPUs", "gpu", (), "`driver` is the first that knows the GPU."),
    ("AWS Neuron SDK on Trainium 1", "neuron-sdk", ("gpu=Trainium1",), "What upstream released together."),
)
WIDE = 60  # characters of a cell on a terminal
FEW = 8  # a column that fewer than one row in this many fills is left out
NONE = "none"  # the cell of a component that the facts exclude
MANY = 4  # values with a flavour (3.13t) that a cell names


def show_components(folders: Sequence[Path], markdown: bool = False) -> Result:
    """Return all components of the fact files in `folders` that a user can request; with `markdown` the page of the
    main tables (docs/tables.md)."""
    matrix = load_fact_table(folders)
    if markdown:
        return Result({}, tables_page(matrix))
    rows = [
        {"component": item.name, "about": item.about, "known": len(values), "newest": values[0] if values else ""}
        for item, values in zip(matrix.components, matrix.values, strict=True)
        if not item.hidden
    ]
    cells = [[str(row[key]) for key in ("component", "known", "newest", "about")] for row in rows]
    return Result({"components": rows}, table(["COMPONENT", "KNOWN", "NEWEST", "ABOUT"], cells))


def tables_page(matrix: FactTable) -> str:
    """Return the tables of docs/tables.md."""
    parts = [PAGE]
    for title, name, given, about in TABLES:
        rows = component_rows(matrix, name, parse_request(given, matrix))
        parts += [f"## {title}", about, "\n".join(markdown_table(table_columns(matrix, name, rows), rows))]
    return "\n\n".join(parts)


def table_columns(matrix: FactTable, name: str, rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the component itself, then the others by rank."""
    return [
        name,
        *(item.name for item in matrix.components if item.name != name and any(item.name in row for row in rows)),
    ]


def show_component(name: str, given: Sequence[str], folders: Sequence[Path], markdown: bool = False) -> Result:
    """Return the table of one component of the fact files in `folders`; `given` are words such as ``arch=arm64`` that
    restrict it. Raises SpecError."""
    matrix = load_fact_table(folders)
    component = matrix.component(name)
    if component is None:
        known = [item.name for item in matrix.components if not item.hidden]
        raise SpecError(f"no component is called '{name}'", did_you_mean(name, known, "the components are"))
    rows = component_rows(matrix, name, parse_request(given, matrix))
    columns = table_columns(matrix, name, rows)
    data = {"component": name, "rows": rows}
    if markdown:
        return Result(data, "\n".join(markdown_table(columns, rows)))
    cells = [[_shorten(row.get(column, "")) for column in columns] for row in rows]
    return Result(data, table([column.upper() for column in columns], cells))


def component_rows(matrix: FactTable, name: str, given: Sequence[Ask]) -> list[dict[str, str]]:
    """Return one row per value of a component: component → what it may be beside it. Values that are impossible under
    what is `given` have no row; a component that few rows restrict, or all in the same way, has no column."""
    number = matrix.number[name]
    rows = []
    for value in matrix.values[number]:
        asks = (*_exact_ask(matrix, name, value), *given)
        case = Query.of(matrix, asks, ())
        if case.plan is not None:
            cells = allowed_values(case, {ask.component for ask in given} | {name})
            rows.append({name: value, **cells})
    counts: dict[str, int] = {}
    for row in rows:
        for column in row:
            counts[column] = counts.get(column, 0) + 1
    dull = {column for column in counts if len({row.get(column) for row in rows}) == 1 and len(rows) > 1}
    kept = {column for column, count in counts.items() if count * FEW >= len(rows)} - dull
    return [{column: text for column, text in row.items() if column in kept} for row in rows]


def _exact_ask(matrix: FactTable, name: str, value: str) -> tuple[Ask, ...]:
    component = matrix.components[matrix.number[name]]
    operator = "is" if component.kind == "name" else "=="
    return (Ask(name, Constraint(((Term(operator, value),),), value), value),)


def allowed_values(case: Query, named: Collection[str]) -> dict[str, str]:
    """Return component → the values that all facts that apply leave it; after a stroke what is recommended beside that,
    but not required."""
    matrix = case.matrix
    hard, soft = allowed_masks(case)
    found = {}
    for number in sorted(hard.keys() | soft.keys()):
        component, mask = matrix.components[number], hard.get(number, matrix.full[number])
        if (component.hidden and component.kind == "name") or component.name in named:
            continue
        texts = [format_ranges(matrix, number, mask) or NONE] if mask | ABSENT != matrix.full[number] else []
        more = soft.get(number, mask) & mask
        if more | ABSENT != mask | ABSENT and component.name == "driver":
            texts.append(f"/ {format_ranges(matrix, number, more)}")
        if texts:
            found[component.name] = " ".join(texts)
    return found


def allowed_masks(case: Query) -> tuple[dict[int, int], dict[int, int]]:
    """Return (component → the values that hard facts leave it, the same of recommendations) beside the plan."""
    assert case.plan is not None
    matrix = case.matrix
    hard: dict[int, int] = {}
    soft: dict[int, int] = {}
    for row in evaluate_rows(matrix, case.plan.assignment, case.waived):
        fact = matrix.fact(row.row)
        if fact.default:
            continue
        for number, mask in row_claim(matrix, row.row).allowed.items():
            if matrix.components[number].name not in row.yields and fact.strength != "disputed":
                cells = hard if fact.strength == "hard" else soft
                cells[number] = cells.get(number, matrix.full[number]) & mask
    return hard, soft


def format_ranges(matrix: FactTable, number: int, mask: int) -> str:
    """Return the values of a mask, neighbours as ranges: ``3.10–3.14, 3.13t``, ``>=525.60.13``."""
    component = matrix.components[number]
    values = [value_text(component, value) for value in matrix.values_of(number, mask)]
    if component.kind == "name":
        return ", ".join(values)
    bits = ascending_bits(matrix, number)
    runs: list[list[str]] = []
    last = -2
    for at, bit in enumerate(bits):
        if mask & bit:
            value = value_text(component, matrix.values_of(number, bit)[0])
            if at == last + 1 and runs:
                runs[-1].append(value)
            else:
                runs.append([value])
            last = at
    if len(runs) == 1 and bits and len(runs[0]) > 1 and mask & bits[-1] and not component.complete:
        return f">={runs[0][0]}"
    plain = {value for run in runs for value in run}
    texts = [run[0] if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs]
    return ", ".join(texts + [value for value in values if value not in plain and "+" not in value][:MANY])


def _shorten(text: str) -> str:
    return text if len(text) <= WIDE else text[: WIDE - 1] + "…"


def markdown_table(columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the rows as a Markdown table."""
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    lines += [f"| {' | '.join(row.get(column, '').replace('|', '/') for column in columns)} |" for row in rows]
    return lines
