"""Rows derived from file names and metadata: tags, markers, versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from envbuild.core.errors import SpecError
from envbuild.core.yaml_nodes import Table
from envbuild.core.yaml_reader import Reader
from envbuild.matrix.collect import release_rows as module
from envbuild.matrix.collect.fact_writer import Derived, DerivedFact, DerivedRow, render_derived, render_flow
from envbuild.matrix.collect.release_rows import (
    find_requirements,
    release_cells,
    requirement_rows,
    specifier_constraint,
    specifiers,
)
from envbuild.matrix.collect.remote_wheel import Metadata
from envbuild.matrix.facts import values, version
from envbuild.matrix.facts.index_releases import list_releases, parse_wheel_file
from envbuild.matrix.facts.model import Component
from envbuild.matrix.facts.value_match import matches
from envbuild.matrix.facts.version import newest_first
from envbuild.net.python_index import IndexFile
from tests.support.wheel_server import context, index_site, listed, make_wheel

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("name", "pythons", "archs"),
    [
        ("torch-2.8.0-cp313-cp313t-manylinux_2_28_x86_64.whl", ("3.13t",), ("amd64",)),
        ("torch-2.5.0-cp39-cp39-manylinux2014_aarch64.whl", ("3.9",), ("arm64",)),
        ("torch-1.10.0-cp36-cp36m-manylinux1_x86_64.whl", ("3.6",), ("amd64",)),
        ("vllm-0.33.0-cp38-abi3-manylinux_2_31_x86_64.whl", ("3.8+",), ("amd64",)),
        ("xformers-0.0.35-py39-none-manylinux_2_28_x86_64.whl", ("any",), ("amd64",)),
        ("transformer_engine-2.8.0-py3-none-any.whl", ("any",), ("amd64", "arm64")),
        ("cuda_toolkit-13.5.0-py2.py3-none-any.whl", ("any",), ("amd64", "arm64")),
        ("nvidia_cudnn_cu12-9.1.0.70-py3-none-manylinux2014_x86_64.whl", ("any",), ("amd64",)),
        (
            "nvidia_cuda_nvcc-13.0.88-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
            ("any",),
            ("amd64",),
        ),
    ],
)
def test_tags(name: str, pythons: tuple[str, ...], archs: tuple[str, ...]) -> None:
    build = parse_wheel_file(listed(name), "1")
    assert build is not None
    assert (build.pythons, build.archs) == (pythons, archs)


@pytest.mark.parametrize(
    "name",
    [
        "torch-2.8.0-cp313-none-macosx_11_0_arm64.whl",
        "torch-2.8.0-cp313-cp313-win_amd64.whl",
        "torch-2.8.0-cp27-cp27mu-manylinux1_x86_64.whl",
        "torch-2.8.0-pp310-pypy310_pp73-manylinux1_x86_64.whl",
        "torch-2.8.0-cp313-cp313-manylinux_2_28_s390x.whl",
        "torch-2.8.0.whl",
        "torch-banana-cp313-cp313-manylinux_2_28_x86_64.whl",
    ],
)
def test_files_for_others(name: str) -> None:
    assert parse_wheel_file(listed(name), "1") is None


def test_which_files_make_a_release(tmp_path: Path) -> None:
    names = [
        "torch-2.8.0-cp312-cp312-manylinux_2_28_x86_64.whl",
        "torch-2.8.0-2-cp312-cp312-manylinux_2_28_x86_64.whl",  # another build of the same
        "torch-2.8.0+cpu-cp312-cp312-manylinux_2_28_x86_64.whl",  # from some wheel folder
        "torch-2.9.0rc1-cp312-cp312-manylinux_2_28_x86_64.whl",
        "torch-1.9.0-cp39-cp39-manylinux1_x86_64.whl",
        "torch-2.7.0-cp312-cp312-win_amd64.whl",
    ]
    site = index_site(tmp_path / "simple", [make_wheel(tmp_path, name) for name in names])
    found = list_releases(context(site).index, "torch", "1.10.0")
    assert list(found) == ["2.8.0"]
    assert [build.file.name for build in found["2.8.0"].builds()] == [names[1]]


@pytest.mark.parametrize("number", ["9" * 61, "2.8.0post_5", "9" * 5000])
def test_a_version_that_the_matrix_does_not_read_is_left_out(number: str) -> None:
    index = context_index(
        IndexFile(f"demo-{number}-py3-none-any.whl", ""), IndexFile(f"demo-{number}.tar.gz", ""),
        IndexFile("demo-1.1-py3-none-any.whl", ""),
    )  # fmt: skip
    assert list(list_releases(index, "demo")) == ["1.1"]


def test_withdrawn_releases() -> None:
    index = context_index(
        IndexFile("demo-1.0-py3-none-any.whl", "", yanked=True),
        IndexFile("demo-1.1-py3-none-any.whl", "", yanked=True),
        IndexFile("demo-1.1.tar.gz", ""),
    )
    assert list(list_releases(index, "demo")) == ["1.1"]
    found = list_releases(index, "demo", yanked=True)
    assert {number: release.yanked for number, release in found.items()} == {"1.1": False, "1.0": True}


TORCH_2_8_0_AARCH64 = (  # METADATA of torch-2.8.0-cp313-cp313-manylinux_2_28_aarch64.whl, in part
    "filelock",
    'setuptools; python_version >= "3.12"',
    'nvidia-cudnn-cu12==9.10.2.21; platform_system == "Linux" and platform_machine == "x86_64"',
    'nvidia-nccl-cu12==2.27.3; platform_system == "Linux" and platform_machine == "x86_64"',
    'triton==3.4.0; platform_system == "Linux" and platform_machine == "x86_64"',
    'optree>=0.13.0; extra == "optree"',
)


def test_markers_are_evaluated() -> None:
    metadata = Metadata(TORCH_2_8_0_AARCH64, ">=3.9.0", "")
    assert set(find_requirements(metadata, "arm64", "3.13")) == {"filelock", "setuptools"}
    assert set(find_requirements(metadata, "arm64", "3.11")) == {"filelock"}
    assert str(find_requirements(metadata, "amd64", "3.13t")["nvidia-nccl-cu12"].specifier) == "==2.27.3"
    assert "optree" in find_requirements(metadata, "amd64", "3.13", extra="optree")


def test_python_of_two_digits_is_later_than_one() -> None:
    metadata = Metadata(('triton==2.2.0; python_version < "3.12"', 'x; python_version < "3.9"'), "", "")
    assert set(find_requirements(metadata, "amd64", "3.11")) == {"triton"}
    assert set(find_requirements(metadata, "amd64", "3.12")) == set()


def test_invalid_requirement_lines_are_ignored() -> None:
    old = Metadata(("torch (==2.0.1)", "torch ==2.0.1 ;; x", "nvidia nccl", 'x; banana == "1"'), "", "")
    assert {name: str(one.specifier) for name, one in find_requirements(old, "amd64", "3.11").items()} == {
        "torch": "==2.0.1"
    }


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("==2.8.0", "==2.8.0"),
        ("===2.8.0", "==2.8.0"),
        ("~=3.8.0", ">=3.8.0,<3.9"),
        ("~=2.10", ">=2.10,<3"),
        ("<=13.1.1.3,>=13.1.0.3", ">=13.1.0.3,<=13.1.1.3"),
        ("<14,>=13.0.3", ">=13.0.3,<14"),
        ("==13.10.0.20.*", "13.10.0.20"),
        ("", "*"),
        (">=2.0,!=2.1.5", ">=2.0,!=2.1.5"),
        (
            "!=6.30.*,!=6.31.*,!=6.32.*,!=6.33.0.*,!=6.33.1.*,!=6.33.2.*,!=6.33.3.*,!=6.33.4.*,>=5.29.6",
            [">=5.29.6,<6.30", ">=6.33.5"],
        ),
        (">=2.0,!=2.1.*,<3", [">=2.0,<3,<2.1", ">=2.2,<3"]),
    ],
)
def test_requirements_as_constraints_of_the_matrix(text: str, wanted: str | list[str]) -> None:
    found = specifier_constraint(SpecifierSet(text))
    assert found == wanted
    component = Component("demo", "version", "")
    parsed = values.parse_constraint(component, found)
    for number in (
        "1.9",
        "2.0",
        "2.0.5",
        "2.1",
        "2.1.9",
        "2.8.0",
        "2.10",
        "2.11.1",
        "3.8.4",
        "3.9",
        "13.1.0.9",
        "13.5",
    ):
        assert matches(component, parsed, number) is SpecifierSet(text).contains(number), number
    for number in ("5.29.5", "5.29.6", "6.29.9", "6.30.1", "6.32.99", "6.33.4", "6.33.5", "7.0", "13.10.0.20.7"):
        assert matches(component, parsed, number) is SpecifierSet(text).contains(number), number


@pytest.mark.parametrize("text", ["!=1.{}.*", "~=1.{}.0", ">={}", "===foo", ">=5!1"])
def test_versions_that_the_matrix_does_not_read_are_left_out(text: str) -> None:
    """They ended the command with a traceback, or were written into a file that no command could read."""
    text = text.format("1" * 5000)
    assert find_requirements(Metadata((f"torch{text}", "numpy>=1"), "", ""), "amd64", "3.12").keys() == {"numpy"}
    assert specifiers(text) == SpecifierSet()


def test_labels() -> None:
    assert specifier_constraint(SpecifierSet("==2.8.0"), labels=True) == "2.8.0"
    assert specifier_constraint(SpecifierSet("==2.0.0+cu117"), labels=True) == "==2.0.0+cu117"


def test_stable_abi_is_spread_over_pythons(tmp_path: Path) -> None:
    names = ["vllm-0.33.0-cp38-abi3-manylinux_2_31_x86_64.whl", "vllm-0.33.0-cp311-cp311-manylinux_2_31_x86_64.whl"]
    site = index_site(tmp_path / "simple", [make_wheel(tmp_path, name) for name in names])
    release = list_releases(context(site).index, "vllm")["0.33.0"]
    found = release_cells(release, dict.fromkeys(names, "<3.14,>=3.10"))
    assert sorted(python for _, python in found) == ["3.10", "3.11", "3.12", "3.13"]
    assert not any(python.endswith("t") for _, python in found)


def test_rows_have_no_more_conditions_than_needed() -> None:
    pin, other = {"triton": "==3.1.0"}, {"triton": "==3.2.0"}
    cells_ = {(arch, python): pin for arch in ("amd64", "arm64") for python in ("3.9", "3.10")}
    notes = dict.fromkeys(cells_, "a" * 64)
    when = {"torch": "==2.5.0"}
    assert requirement_rows(when, cells_, notes) == [DerivedRow(when, pin, "sha256 aaaaaaaaaaaa")]
    by_arch = {cell: pin if cell[0] == "amd64" else None for cell in cells_}
    assert requirement_rows(when, by_arch, notes) == [DerivedRow({**when, "arch": "amd64"}, pin, "sha256 aaaaaaaaaaaa")]
    by_python = {cell: pin if cell[1] == "3.9" else other for cell in cells_}
    assert [(row.when, row.then) for row in requirement_rows(when, by_python, notes)] == [
        ({**when, "arch": arch, "python": [python]}, then)
        for arch in ("amd64", "arm64")
        for python, then in (("3.10", other), ("3.9", pin))
    ]
    assert requirement_rows(when, dict.fromkeys(cells_), notes) == []


def test_versions_are_in_the_matrix_s_order() -> None:
    assert newest_first(["2.8.0", "2.10.0", "2.9.1", "2.8.0"]) == ["2.10.0", "2.9.1", "2.8.0"]
    assert module.oldest_first(["3.13t", "3.9", "3.13", "3.10"])[:2] == ["3.9", "3.10"]


# --- how files are written


@pytest.mark.parametrize(
    "text",
    [
        *("2.8.0", "3.10", "yes", "No", "null", "", "-", "*", "==2.8.0", "a: b", "it's", 'a "b"', "#x", "x #y", "[x]"),
        *("amd64", "RTX 4090", "y", "1e3", "~", "sha256 0000", " x", "x ", "a, b", "{x}", "&x", "!x", "0x1", "NaN"),
        *("é", "@x", "true", "a/b", "12:30:45", ".inf", "x:"),
    ],
)
def test_texts_are_read_back_as_texts(text: str) -> None:
    reader = Reader()
    path = f"schema: 1\nfacts: [{render_flow({'a': text, 'b': [text]})}]\n"
    top = module_parse(reader, path)
    row = top.entries["facts"][1].items[0]  # type: ignore[union-attr]
    assert isinstance(row, Table)
    assert reader.text(row.entries["a"][1], "a") == text
    assert reader.texts(row.entries["b"][1], "b") == (text,)
    assert reader.findings == []


def test_a_file_is_sorted_and_has_a_header() -> None:
    def fact(id: str) -> DerivedFact:
        return DerivedFact(id, "limits", "build", "measured", "ptxas", "asked", (DerivedRow({"cuda": "12.8"}, {}),))

    components = {"cuda": {"values": ["12.8"]}, "a": {"kind": "name", "hidden": True, "rank": 14}}
    text = render_derived(
        Derived(components, {}, (fact("cuda.b"), fact("cuda.a"))), {"cuda.a": "2026-01-01", "cuda.b": "2026"}
    )
    assert text.splitlines() == [
        "# Written by `envbuild matrix refresh`; do not edit.",
        "schema: 1",
        "components:",
        "  a: {kind: name, hidden: true, rank: 14}",
        '  cuda: {values: ["12.8"]}',
        "facts:",
        "- id: cuda.a",
        "  kind: limits",
        "  scope: build",
        "  strength: hard",
        '  source: {type: measured, where: ptxas, seen: "2026-01-01", how: asked}',
        "  rows:",
        '  - {when: {cuda: "12.8"}, then: {}}',
        "- id: cuda.b",
        "  kind: limits",
        "  scope: build",
        "  strength: hard",
        '  source: {type: measured, where: ptxas, seen: "2026", how: asked}',
        "  rows:",
        '  - {when: {cuda: "12.8"}, then: {}}',
    ]


def module_parse(reader: Reader, text: str) -> Table:
    from envbuild.core import yaml_parser

    try:
        return yaml_parser.parse(text, "derived.yaml", reader.findings)
    except SpecError as error:
        raise AssertionError(f"{text}: {error}") from None


def context_index(*files: IndexFile):  # type: ignore[no-untyped-def]
    """Return an index that lists just these."""
    from tests.support.wheel_server import empty_index

    index = empty_index()
    index.cache["demo"] = list(files)
    return index


def test_every_number_is_a_version() -> None:
    for number in ("2.26.2.post1", "9.1.0.70.post1", "0.0.33.post2", "0.10.1.1"):
        assert version.key(number) > version.key("0")
