"""Refreshing derived files: nothing new changes nothing, changes are reported row by row, fewer rows are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import InputError, SpecError
from envbuild.matrix.answer.newer_releases import newer_than_facts
from envbuild.matrix.collect import fact_diff, refresh
from envbuild.matrix.collect.fact_writer import Derived, DerivedFact, DerivedRow, read_derived
from envbuild.matrix.collect.refresh import NAMES, Manifest, RefreshReport, refresh_facts
from envbuild.matrix.facts.compile import compile_facts
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.model import Component, Fact, Facts, Source
from envbuild.net.python_index import PackageIndex
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from tests.support.torch_wheels import AMD, ARM, SM_2_8, wheel
from tests.support.wheel_server import index_site, make_wheel, run_script

pytestmark = pytest.mark.unit

FIRST, LATER = date(2026, 11, 21), date(2026, 11, 22)


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the reading of all facts, but in the slow tests: it takes seconds."""
    if not request.node.get_closest_marker("slow_unit"):
        monkeypatch.setattr(refresh, "check_readable", lambda folder, texts: None)


def wheels(folder: Path, *versions: str) -> list[Path]:
    made = []
    for version in versions:
        pins = (f"nvidia-nccl-cu12=={version}.3",)
        made.append(wheel(folder, version, "3.13", AMD, cuda="12.8", sm=SM_2_8, requires=pins))
        made.append(wheel(folder, version, "3.13", ARM))
    return made


def site_of(tmp_path: Path, name: str, *versions: str) -> Site:
    return index_site(tmp_path / name, wheels(tmp_path / f"{name}-wheels", *versions))


def run(
    site: Site, folder: Path, today: date = FIRST, names: Sequence[str] = ("torch",), **more: bool
) -> RefreshReport:
    return refresh_facts(names, site, SilentReporter(), folder, run_script, today=today, **more)


@pytest.mark.slow_unit
def test_an_unchanged_index_leaves_the_file_byte_for_byte(tmp_path: Path) -> None:
    site, folder = site_of(tmp_path, "simple", "2.8.0", "2.9.1"), tmp_path / "derived"
    first = run(site, folder)
    assert [file.path.name for file in first.files] == ["torch.yaml"]
    assert first.changed and first.files[0].written
    text, was = (folder / "torch.yaml").read_bytes(), (folder / "torch.yaml").stat().st_mtime_ns
    again = run(site, folder, LATER)
    assert not again.changed and not again.files[0].written and again.files[0].lines == ()
    assert (folder / "torch.yaml").read_bytes() == text
    assert (folder / "torch.yaml").stat().st_mtime_ns == was
    assert "1 file is as before" in again.text()
    assert list(folder.iterdir()) == [folder / "torch.yaml"]


def test_a_new_release_is_reported_and_changes_dates_of_its_facts_only(tmp_path: Path) -> None:
    folder = tmp_path / "derived"
    run(site_of(tmp_path, "old", "2.8.0"), folder)
    report = run(site_of(tmp_path, "new", "2.8.0", "2.16.0"), folder, LATER)
    lines = report.files[0].lines
    assert "+ torch 2.16.0" in lines
    assert "torch.nccl" in lines
    assert "  + arch amd64, channel index, torch ==2.16.0: nccl ==2.16.0.3" in lines
    assert not any(line.strip().startswith(("-", "~")) for line in lines)
    assert lines[0] in report.text()
    tree = read_derived(folder / "torch.yaml")
    assert {fact["source"]["seen"] for fact in tree["facts"]} == {str(LATER)}  # the release is in every fact


def test_an_unchanged_fact_has_its_old_date(tmp_path: Path) -> None:
    folder = tmp_path / "derived"
    site = site_of(tmp_path, "simple", "2.8.0")
    run(site, folder)
    path = folder / "torch.yaml"
    path.write_text(path.read_text().replace('nccl: "==2.8.0.3"', 'nccl: "==2.8.0.2"'))
    report = run(site, folder, LATER)
    assert [line for line in report.files[0].lines if line.startswith("torch")] == ["torch.nccl"]
    assert any("nccl ==2.8.0.2 → nccl ==2.8.0.3" in line for line in report.files[0].lines)
    days = {fact["id"]: fact["source"]["seen"] for fact in read_derived(path)["facts"]}
    assert days.pop("torch.nccl") == str(LATER)
    assert set(days.values()) == {str(FIRST)}


def test_fewer_rows_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "derived"
    run(site_of(tmp_path, "old", "2.8.0", "2.9.1"), folder)
    text = (folder / "torch.yaml").read_bytes()
    less = site_of(tmp_path, "new", "2.9.1")
    with pytest.raises(InputError) as caught:
        run(less, folder, LATER)
    assert caught.value.exit_code == 10
    messages = [finding.message for finding in caught.value.findings]
    assert "torch would have 1 instead of 2 versions; gone: 2.8.0" in messages
    assert any(
        message.startswith("torch.wheel-arch would have 2 instead of 4 rows; gone: arch") for message in messages
    )
    assert "--allow-fewer" in caught.value.findings[-1].hint
    assert (folder / "torch.yaml").read_bytes() == text
    report = run(less, folder, LATER, allow_fewer=True)
    assert report.files[0].written and report.files[0].fewer
    assert "- torch 2.8.0" in report.files[0].lines
    assert not run(less, folder, LATER).changed


def test_without_writing(tmp_path: Path) -> None:
    folder = tmp_path / "derived"
    report = run(site_of(tmp_path, "simple", "2.8.0"), folder, write=False)
    assert report.changed and not report.files[0].written
    assert "torch.yaml (not written)" in report.text()
    assert not folder.exists()
    run(site_of(tmp_path, "more", "2.8.0", "2.9.1"), folder)
    fewer = run(site_of(tmp_path, "less", "2.9.1"), folder, write=False)  # reported, as no file is written
    assert fewer.files[0].fewer


def test_a_file_with_another_spelling_is_written_again(tmp_path: Path) -> None:
    site, folder = site_of(tmp_path, "simple", "2.8.0"), tmp_path / "derived"
    run(site, folder)
    text = (folder / "torch.yaml").read_text()
    (folder / "torch.yaml").write_text("# by hand\n" + text)
    report = run(site, folder, LATER)
    assert report.files[0].lines == ("written again: the order or the spelling of its lines changed",)
    assert (folder / "torch.yaml").read_text() == text


def test_unknown_collectors_are_refused(tmp_path: Path) -> None:
    site = site_of(tmp_path, "simple", "2.8.0")
    with pytest.raises(SpecError, match="no collector is called 'troch'") as caught:
        run(site, tmp_path / "derived", names=("troch", "torch", "banana"))
    assert [finding.hint for finding in caught.value.findings] == [
        "did you mean 'torch'?",
        f"the collectors are: {', '.join(sorted(NAMES))}",
    ]
    with pytest.raises(SpecError, match="reads a file, but none was passed"):
        run(site, tmp_path / "derived", names=("neuron",))


def test_a_derived_file_that_is_not_yaml(tmp_path: Path) -> None:
    site, folder = site_of(tmp_path, "simple", "2.8.0"), tmp_path / "derived"
    folder.mkdir()
    (folder / "torch.yaml").write_text("<<<<<<< HEAD\nschema: 1\n=======\n")
    with pytest.raises(SpecError, match="torch"):
        run(site, folder)


def test_an_index_without_the_project_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "derived"
    run(site_of(tmp_path, "simple", "2.8.0"), folder)
    with pytest.raises(InputError, match=r"nothing for torch\.yaml was found"):
        run(index_site(tmp_path / "other", [make_wheel(tmp_path, "x-1.0-py3-none-any.whl")]), folder)


@pytest.mark.slow_unit
def test_a_file_that_no_command_could_read_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a file of an index, which may have any signs, becomes a part of a fact."""
    row = DerivedRow({"cuda": "12.8"}, {"sm": {"cubins": ["90"]}}, "nvcc-1-py3-none-{}.whl")
    fact = DerivedFact(
        id="cuda.ptxas-targets",
        question="cuda-sm",
        kind="limits",
        scope="build",
        type="measured",
        where="bin/ptxas",
        how="targets",
        because="CUDA {cuda} compiles no machine code for {sm}",
        rows=(row,),
    )

    def collect(word: str) -> None:
        named = replace(fact, rows=(replace(row, note=row.note.format(word)),))
        monkeypatch.setitem(refresh.COLLECTORS, "nvcc", lambda context: {"nvcc": Derived(facts=(named,))})
        run(Site(tmp_path / "store", mirrors={"python:": ()}), tmp_path / "derived", names=("nvcc",), allow_fewer=True)

    collect("any")
    before = (tmp_path / "derived/nvcc.yaml").read_bytes()
    for part in ("\u202e", "\x1b", "\ud800", "x" * (2 << 20)):
        with pytest.raises(InputError, match="what was collected cannot be read"):
            collect(part)
        assert (tmp_path / "derived/nvcc.yaml").read_bytes() == before


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "derived").write_text("a file")
    with pytest.raises(InputError, match="cannot be written"):
        run(site_of(tmp_path, "simple", "2.8.0"), tmp_path / "derived")


def test_by_default_all_that_read_the_index_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing for cudnn\.yaml was found") as caught:
        run(site_of(tmp_path, "simple", "2.8.0"), tmp_path / "derived", names=())
    empty = {finding.message.split()[2] for finding in caught.value.findings}
    assert empty > {"nvcc.yaml", "nccl-cubins.yaml", "vllm.yaml"}
    assert not empty & {"torch.yaml", "neuron.yaml"}
    assert not (tmp_path / "derived").exists()


def test_neuron_takes_a_manifest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        refresh_facts(
            ("neuron",),
            index_site(tmp_path, []),
            SilentReporter(),
            tmp_path,
            run_script,
            manifest=Manifest(tmp_path / "x.json", "a@b"),
        )


# --- the differences


def derived(*rows: DerivedRow, because: str = "", values: Sequence[str] = ("1.0",)) -> Derived:
    fact = DerivedFact("demo.a", "limits", "build", "measured", "where", "how", rows, because=because)
    return Derived({"demo": {"values": list(values)}}, {}, (fact,))


def differences(old: Derived, new: Derived) -> list[str]:
    return list(fact_diff.diff_lines(fact_diff.derived_tree(old), fact_diff.derived_tree(new)))


ROW = DerivedRow({"demo": "==1.0"}, {"gcc": "<=13"}, "sha256 1")


def test_rows_that_are_added_gone_and_changed() -> None:
    other = DerivedRow({"demo": "==2.0"}, {"gcc": ["13", "14"]})
    changed = DerivedRow({"demo": "==1.0"}, {"gcc": "<=14"}, "sha256 1")
    assert differences(derived(ROW), derived(ROW)) == []
    assert differences(derived(ROW), derived(other, changed)) == [
        "demo.a",
        "  + demo ==2.0: gcc [13, 14]",
        "  ~ demo ==1.0: gcc <=13 → gcc <=14",
    ]
    assert differences(derived(ROW, other), derived(ROW)) == ["demo.a", "  - demo ==2.0: gcc [13, 14]"]


def test_a_row_whose_source_alone_changed() -> None:
    again = DerivedRow(ROW.when, ROW.then, "sha256 2")
    assert differences(derived(ROW), derived(again)) == [
        "demo.a",
        "  ~ demo ==1.0: gcc <=13 → gcc <=13 (sha256 1 → sha256 2)",
    ]


def test_rows_without_a_condition_and_competing_rows() -> None:
    first, second = DerivedRow({}, {"demo": "==1"}), DerivedRow({}, {"demo": "==2"})
    assert differences(derived(first), derived(first, second)) == ["demo.a", "  + always: demo ==2"]


def test_sentences_and_values() -> None:
    old, new = derived(ROW, because="it is so"), derived(ROW, because="it is not", values=("1.1",))
    assert differences(old, new) == ["+ demo 1.1", "- demo 1.0", "demo.a", "  ~ because: it is so → it is not"]


def test_added_and_removed_facts() -> None:
    none = Derived({"demo": {"values": ["1.0"]}})
    assert differences(none, derived(ROW)) == ["+ fact demo.a, 1 row", "  + demo ==1.0: gcc <=13"]
    assert differences(derived(ROW), none) == ["- fact demo.a, 1 row", "  - demo ==1.0: gcc <=13"]
    old, new = fact_diff.derived_tree(derived(ROW)), fact_diff.derived_tree(none)
    assert [finding.message for finding in fact_diff.find_missing_rows(old, new, "x")] == [
        "demo.a would have 0 instead of 1 rows; gone: demo ==1.0"
    ]


def test_replaced_rows_do_not_count_as_missing() -> None:
    old, new = derived(ROW), derived(DerivedRow({"demo": "==2.0"}, {}))
    assert list(fact_diff.find_missing_rows(fact_diff.derived_tree(old), fact_diff.derived_tree(new), "x")) == []


# --- what the index has beyond the facts


def known(*versions: str) -> FactTable:
    source = Source("metadata", "x", "2026-11-21", "")
    facts = {"torch.nccl": Fact("torch.nccl", "provides", "install", "hard", source, (), "x")}
    return compile_facts(Facts({"torch": Component("torch", "version", "", values=versions)}, {}, facts))


def test_newer_than_the_facts(tmp_path: Path) -> None:
    site = site_of(tmp_path, "simple", "2.8.0", "2.16.0", "2.16.1")
    index = PackageIndex(Transport(site.network()), site.python())
    assert newer_than_facts(index, known("2.17.0a0+b4e4ee81d3", "2.15.0", "2.8.0+cu999")) == [
        "the package index has torch 2.16.1 and 1 more; the facts are of 2026-11-21 and end at 2.15.0"
    ]
    assert newer_than_facts(index, known("2.16.1", "2.16.0")) == []
    assert newer_than_facts(index, known("2.18.0")) == []
