"""Fact files: what they give, and every mistake in them beside the exact words that answer it."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from envbuild.core.errors import SpecError
from envbuild.core.yaml_nodes import relative_path
from envbuild.matrix.facts.load import facts_digest, load_facts
from envbuild.matrix.facts.model import Facts, Term
from tests.support.examples import examples

pytestmark = pytest.mark.unit

BAD = Path(__file__).parent / "bad_facts"
KNOWN = BAD / "known"
CASES = sorted(path.stem for path in BAD.glob("err-*.yaml"))
FACT = """
- id: torch.{id}
  kind: limits
  scope: runtime
  strength: hard
  source: {{type: measured, where: "libtorch_python.so of torch 2.8.0", seen: "2026-11-20"}}
  rows: [{{when: {{torch: "{torch}"}}, then: {{sm: "{sm}"}}}}]
"""


def loaded(folder: Path, text: str, name: str = "more.yaml", *before: Path) -> Facts:
    (folder / name).write_text(f"schema: 1\n{text}")
    return load_facts([*(before or (KNOWN,)), folder])


def fault(folder: Path, text: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        loaded(folder, text)
    return caught.value


@pytest.mark.parametrize(("kind", "part"), [("fifo", "facts"), ("endless", "facts/derived")])
def test_a_fact_file_that_never_ends_is_refused(kind: str, part: str, tmp_path: Path) -> None:
    """A pipe would wait for its writer, and a link to /dev/zero would fill the memory: in a process with limits."""
    path = tmp_path / part / "odd.yaml"
    path.parent.mkdir(parents=True)
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    text = f"""
import resource
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from envbuild.core.errors import SpecError
from envbuild.matrix.facts.compile import load_fact_table
try:
    load_fact_table([Path({str(KNOWN)!r}), Path({str(tmp_path / "facts")!r})], Path({str(tmp_path / "cache")!r}))
except SpecError as error:
    print([finding.where for finding in error.findings])
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == f"[{str(path)!r}]\n", done.stderr


@pytest.mark.parametrize("kind", ["folder", "large", "dangling"])
def test_a_fact_file_that_cannot_be_read_is_reported_by_its_path(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.yaml"
    if kind == "folder":
        path.mkdir()
    elif kind == "large":
        path.write_text("#" * (1 << 20) + "\n")
    else:
        path.symlink_to("nowhere")
    for read in (lambda: load_facts([KNOWN, tmp_path]), lambda: facts_digest([tmp_path])):
        with pytest.raises(SpecError) as caught:
            read()
        assert [finding.where for finding in caught.value.findings] == [str(path)]


def test_the_corpus_is_complete() -> None:
    """Each file has its text and each text its file."""
    assert len(CASES) >= 20
    assert sorted(path.stem for path in BAD.glob("err-*.txt")) == CASES


@pytest.mark.parametrize("case", CASES)
def test_message(case: str, tmp_path: Path, update_golden: bool) -> None:
    path = Path(shutil.copy(BAD / f"{case}.yaml", tmp_path))
    with pytest.raises(SpecError) as caught:
        load_facts([KNOWN, tmp_path])
    text = str(caught.value).replace(relative_path(path), "{path}").replace(relative_path(KNOWN), "{known}") + "\n"
    stored = BAD / f"{case}.txt"
    if update_golden:
        stored.write_text(text)
    assert text == stored.read_text()
    assert caught.value.exit_code == 2
    assert all(finding.where for finding in caught.value.findings)


def test_contents_of_a_fact_file() -> None:
    facts = load_facts([KNOWN])
    assert list(facts.components) == ["gpu", "sm", "arch", "torch", "torch-cuda", "cuda", "driver"]  # by rank
    gpu = facts.components["gpu"]
    assert (gpu.kind, gpu.about, gpu.rank, gpu.cost, gpu.shown) == ("name", "the GPU", 1, 9, "{value}")
    assert gpu.values == ("H100", "A100")
    assert gpu.aliases == {"h10080gbhbm3": "H100", "a100sxm440gb": "A100"}
    assert facts.components["torch-cuda"].hidden
    assert facts.components["driver"].exact
    assert facts.questions["torch-sm"].of == ("torch", "sm")
    fact = facts.facts["torch.sm"]
    assert (fact.kind, fact.scope, fact.strength, fact.question) == ("limits", "runtime", "hard", "torch-sm")
    assert (fact.source.type, fact.source.seen, fact.source.how) == ("measured", "2026-11-20", "architecture string")
    assert fact.where.endswith("components.yaml:15:3")
    (row,) = fact.rows
    assert row.when["torch"].alternatives == ((Term("in", "2.8"),),)
    assert row.then["sm"].alternatives == ((Term("cubin", "8.0"),), (Term("cubin", "9.0"),))
    assert facts.digest == facts_digest([KNOWN])


def test_rows_and_alternatives(tmp_path: Path) -> None:
    facts = loaded(
        tmp_path,
        """
facts:
- id: cuda.driver
  kind: requires
  scope: container-start
  strength: conditional
  because: >
    CUDA {cuda} needs a driver
    of its own
  condition: see to {driver}
  source: {type: upstream-docs, where: CUDA release notes, seen: 2026-11-20}
  rows:
  - {when: {cuda: ["12.8", ">=11.8,<12"], gpu: "*"}, then: {driver: ">=525.60.13"}, note: the minor rule}
  - {then: {driver: "-"}}
""",
    )
    fact = facts.facts["cuda.driver"]
    assert fact.because == "CUDA {cuda} needs a driver of its own"
    assert fact.condition == "see to {driver}"
    first, second = fact.rows
    assert first.when["cuda"].alternatives == ((Term("in", "12.8"),), (Term(">=", "11.8"), Term("<", "12")))
    assert first.when["cuda"].text == "12.8 or >=11.8,<12"
    assert (first.note, second.note) == ("the minor rule", "")
    assert first.where.endswith("more.yaml:14:5")
    assert (dict(second.when), second.then["driver"].alternatives) == ({}, ((Term("none"),),))


def test_a_row_may_only_answer(tmp_path: Path) -> None:
    text = (
        FACT.format(id="works", torch="2.0.1", sm="8.0")
        .replace('sm: "8.0"', "")
        .replace("rows", "question: torch-sm\n  rows")
    )
    facts = loaded(tmp_path, f"facts:{text}")
    assert dict(facts.facts["torch.works"].rows[0].then) == {}


def test_a_default(tmp_path: Path) -> None:
    text = "facts:" + FACT.format(id="one", torch="2.8", sm="9.0") + FACT.format(id="two", torch="2.8", sm="9.0")
    facts = loaded(tmp_path, text.replace("kind", "default: true\n  kind", 1)).facts
    assert (facts["torch.one"].default, facts["torch.two"].default) == (True, False)
    error = fault(tmp_path, text.replace("kind", "default: often\n  kind", 1))
    assert error.message == "'default' must be true or false, not text"


def test_more_values_of_a_component(tmp_path: Path) -> None:
    """Versions are sorted newest first, each once; a file may also list names and their other spellings."""
    facts = loaded(
        tmp_path,
        """
components:
  torch: {values: ["2.9.0", "2.10.0a0+b4e4ee81d3", "2.8", "2.10.0", "2.0.1+cu118"]}
  cuda: {values: ["12.8.1", "13.0"]}
  gpu: {values: {L40S: [], H100: [H100 PCIe], B200: [B200 SXM]}}
  sm: {values: ["sm_100", "75"]}
""",
    )
    assert facts.components["torch"].values == (
        "2.10.0",
        "2.10.0a0+b4e4ee81d3",
        "2.9.0",
        "2.8.0",
        "2.0.1+cu118",
        "2.0.1",
    )
    assert facts.components["cuda"].values == ("13.0", "12.8", "11.8")
    assert facts.components["gpu"].values == ("H100", "A100", "B200", "L40S")
    assert facts.components["gpu"].aliases["h100pcie"] == "H100"
    assert facts.components["sm"].values == ("10.0", "9.0", "8.0", "7.5")


def test_a_project_replaces_a_fact_and_adds_its_own(tmp_path: Path) -> None:
    text = FACT.format(id="sm", torch="2.0.1", sm="8.0") + FACT.format(id="own", torch="2.8", sm="9.0")
    facts = loaded(tmp_path, f"facts:{text}")
    assert list(facts.facts) == ["torch.own", "torch.sm"]
    assert facts.facts["torch.sm"].rows[0].when["torch"].text == "2.0.1"
    assert facts.facts["torch.sm"].question == ""


def test_derived_files_count_as_their_folder(tmp_path: Path) -> None:
    (tmp_path / "derived").mkdir()
    text = FACT.format(id="own", torch="2.8", sm="9.0")
    (tmp_path / "derived" / "torch.yaml").write_text(f"schema: 1\nfacts:{text}")
    assert "torch.own" in load_facts([KNOWN, tmp_path]).facts
    error = fault(tmp_path, f"facts:{text}")
    assert error.message == "fact 'torch.own' is defined twice in this folder"


def test_a_project_may_define_a_component_in_the_same_words(tmp_path: Path) -> None:
    """Derived facts that it collects again (`matrix refresh --to facts/derived`) define the same."""
    own = "components:\n  card: {kind: name, about: a card, values: [a, b]}\n"
    own += "questions:\n  q: {of: [card], about: one}\n"
    project = tmp_path / "project"
    project.mkdir()
    loaded(tmp_path, own)
    assert loaded(project, own, "more.yaml", KNOWN, tmp_path).components["card"].values == ("a", "b")
    for change in (("a card", "another"), ("about: one", "about: two")):
        with pytest.raises(SpecError, match="is defined twice"):
            loaded(project, own.replace(*change), "more.yaml", KNOWN, tmp_path)


def test_all_unreadable_files_are_reported_without_consequential_errors(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("schema: 1\nfacts: [\n")
    (tmp_path / "b.yaml").write_text("schema: 2\nfacts: []\n")
    (tmp_path / "c.yaml").write_bytes(b"\xff")
    error = fault(tmp_path, "questions: {torch-a: {of: [torch, what-a-defines], about: x}}")
    assert [Path(finding.where.split(":")[0]).name for finding in error.findings] == ["a.yaml", "b.yaml", "c.yaml"]


def test_no_facts_at_all(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there are no facts"):
        load_facts([tmp_path, tmp_path / "missing"])


def test_a_project_without_facts_adds_none(tmp_path: Path) -> None:
    assert load_facts([KNOWN, tmp_path / "facts"]) == load_facts([KNOWN])


def test_the_digest_is_of_the_bytes_not_of_the_names(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, names in ((one, "ab"), (two, "ba")):
        (folder / "derived").mkdir(parents=True)
        (folder / f"{names[0]}.yaml").write_text("schema: 1\ncomponents: {}\n")
        (folder / "derived" / f"{names[1]}.yaml").write_text("schema: 1\nfacts: []\n")
    assert facts_digest([one]) == facts_digest([two])
    assert facts_digest([one, two / "none"]) != facts_digest([two / "none", one])
    (two / "a.yaml").write_text("schema: 1\nfacts: [ ]\n")
    assert facts_digest([one]) != facts_digest([two])


WORLD = {
    "components": {
        "torch": {"kind": "version", "about": "PyTorch", "values": ["2.8.0"]},
        "gpu": {"kind": "name", "about": "GPU", "rank": 1, "values": ["H100", "A100"]},
        "sm": {"kind": "sm", "about": "capability", "hidden": True},
        "tool": {"kind": "version", "about": "hidden too", "hidden": True, "values": ["1"]},
    },
    "questions": {"torch-sm": {"of": ["torch", "sm"], "about": "code"}, "gpu-sm": {"of": ["gpu", "sm"], "about": "sm"}},
    "facts": [
        {
            "id": f"torch.fact-{number}",
            "question": "torch-sm",
            "kind": "limits",
            "scope": "runtime",
            "strength": "hard",
            "source": {"type": "issue", "where": f"pytorch/pytorch#{number}", "seen": "2026-11-20"},
            "rows": [{"when": {"torch": f"2.{number}", "gpu": ["A100", "H100"]}, "then": {"sm": ">=8.0", "tool": "1"}}],
        }
        for number in range(6)
    ],
}
MORE = [{"torch": {"values": ["2.9.0", "2.8.0+cu126"]}}, {"torch": {"values": ["2.7.1"]}, "gpu": {"values": ["L4"]}}]


def scattered(folder: Path, seed: int) -> Facts:
    """Return the world in files whose names, number and order `seed` decides."""
    order = random.Random(seed)
    pieces: list[dict[str, object]] = [{"components": {name: value}} for name, value in WORLD["components"].items()]  # type: ignore[attr-defined]
    pieces += [{"questions": {name: value}} for name, value in WORLD["questions"].items()]  # type: ignore[attr-defined]
    pieces += [{"facts": [fact]} for fact in WORLD["facts"]]
    pieces += [{"components": more} for more in MORE]
    order.shuffle(pieces)
    files: dict[str, dict[str, object]] = {}
    folder.mkdir()
    (folder / "derived").mkdir()
    for piece in pieces:
        ((key, value),) = piece.items()
        while True:  # one that does not hold this name yet
            file = files.setdefault(order.choice(["a.yaml", "z.yaml", "derived/m.yaml", "q.yaml"]), {"schema": 1})
            merged = file.setdefault(key, type(value)())
            if isinstance(merged, list) and isinstance(value, list):
                merged += value
                break
            if isinstance(merged, dict) and isinstance(value, dict) and not merged.keys() & value.keys():
                merged |= value
                break
    for name, content in files.items():
        (folder / name).write_text(yaml.safe_dump(content, sort_keys=False))
    return load_facts([folder])


def test_the_order_of_files_and_facts_does_not_matter(tmp_path: Path) -> None:
    first = scattered(tmp_path / "0", 0)
    assert first.components["torch"].values == ("2.9.0", "2.8.0+cu126", "2.8.0", "2.7.1")
    for seed in range(1, 12):
        other = scattered(tmp_path / str(seed), seed)
        assert other == first
        assert [list(kind) for kind in (other.components, other.questions, other.facts)] == [
            list(kind) for kind in (first.components, first.questions, first.facts)
        ]


WORDS = st.sampled_from(
    [
        *("torch", "sm", "gpu", "H100", "2.8", ">=2.8", "*", "-", "==2.8.0+cu128", "{torch}", "limits", "runtime"),
        *(
            "hard",
            "id",
            "when",
            "then",
            "rows",
            "source",
            "type",
            "measured",
            "cubins",
            "90a",
            "torch.sm",
            "2026-11-20",
        ),
        *("kind", "version", "about", "values", "of", "question", "torch-sm", "scope", "strength", "conditional"),
    ]
)
LEAVES = WORDS | st.text(max_size=6) | st.integers() | st.floats() | st.booleans() | st.none() | st.dates()
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=5),
    max_leaves=20,
)
KEYS = ("id", "question", "kind", "scope", "strength", "because", "source", "rows", "when", "then", "note")
A_FACT = st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, TREES))
TOPS = st.fixed_dictionaries(
    {"schema": st.just(1)},
    optional={"components": TREES, "questions": TREES, "facts": TREES | st.lists(A_FACT, max_size=3)},
)


@pytest.mark.slow_unit
@examples(200)
@given(tree=TOPS)
def test_any_tree(tree: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    """For any content of a file, the result is facts or every mistake with its place."""
    folder = tmp_path_factory.getbasetemp() / "any"
    folder.mkdir(exist_ok=True)
    (folder / "any.yaml").write_text(yaml.safe_dump(tree, allow_unicode=True))
    try:
        assert isinstance(load_facts([KNOWN, folder]), Facts)
    except SpecError as error:
        assert all(finding.where for finding in error.findings)
