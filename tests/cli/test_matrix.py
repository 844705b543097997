"""`envbuild check` and `envbuild matrix` as users type them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from envbuild.cli.app import create_app
from envbuild.core.store.mark import MARK
from tests.support.command import ROOT, envbuild, refused

pytestmark = pytest.mark.unit


def test_a_conflict_is_explained_and_has_exit_code_3() -> None:
    done = envbuild("check", "gpu=H100", "torch=1.12.1")
    assert done.returncode == 3
    assert (
        "Because torch==1.12.1's wheel contains no code for sm_90 [torch.wheel-arch] and H100 needs code for sm_90 "
        "[gpu.sm], torch==1.12.1 cannot run on H100.\nhint: torch>=2.1\n"
    ) in done.stdout
    assert done.stderr == ""


@pytest.mark.slow_unit
def test_json_has_verdict_reasons_sources_and_nearest() -> None:
    done = envbuild("check", "gpu=H100", "torch=1.12.1", "--json")
    (answer,) = json.loads(done.stdout)["answers"]
    assert (answer["verdict"], answer["exit_code"], done.returncode) == ("conflict", 3, 3)
    (conflict,) = answer["conflicts"]
    assert conflict["minimal"] is True
    assert conflict["nearest"][0] == "torch>=2.1"
    for reason in conflict["reasons"]:
        assert reason["source"]["where"]
        assert reason["source"]["seen"]


def test_a_fact_can_be_waived_in_a_question() -> None:
    done = envbuild("check", "cuda=11.8", "code=sm_90a", "--waive", "cuda.code-targets", "--json")
    (answer,) = json.loads(done.stdout)["answers"]
    assert [one["fact"] for one in answer["waived"]] == ["cuda.code-targets"]
    assert (answer["verdict"], done.returncode) == ("unknown", 9)
    assert [one["question"] for one in answer["unknown"]] == ["cuda-code"]


@pytest.mark.slow_unit
@pytest.mark.parametrize("layers", ["{ucx: {}}", "{torch: {version: 2.8.0}}"])
def test_a_base_image_of_one_s_own_is_what_the_spec_states(layers: str, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    spec = f"""schema: 1
description: x
target: cpu
base: example.com/myapp:1
python: "3.13"
distribution: debian:13
layers: {layers}
"""
    (tmp_path / "images/mine.yaml").write_text(spec)
    done = envbuild("check", "mine", "--json", cwd=tmp_path)
    (answer,) = json.loads(done.stdout)["answers"]
    assert (answer["verdict"], done.returncode) == ("conditional", 0), done.stdout
    assert "base.own" in [one["fact"] for one in answer["conditions"]]


@pytest.mark.slow_unit
@pytest.mark.parametrize(
    ("words", "code", "verdict"),
    [
        (["gpu=H100", "torch=2.8.0", "driver=570.26"], 0, "valid"),
        (["gpu=H100", "torch=2.8.0", "driver=535.86.10"], 0, "conditional"),
        (["torch=2.11.0", "cuda=12.8", "gcc=14"], 0, "disputed"),
        (["cuda=12.3", "gcc=13"], 3, "conflict"),
        (["gpu=H100", "torch=2.99"], 9, "unknown"),
    ],
)
def test_verdicts_and_exit_codes(words: list[str], code: int, verdict: str) -> None:
    done = envbuild("check", *words)
    assert done.returncode == code
    assert done.stdout.startswith(f"{verdict}: ")


@pytest.mark.slow_unit
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["trch=2.0"], "did you mean 'torch'?"),
        (["gpu=H1000"], "did you mean 'H100'?"),
        (["cuda=banana"], "'banana' is not a version"),
        (["torch=2.7.9"], "torch 2.7.9 does not exist"),
        (["torch=2.1.0", "torch=2.2.0"], "contradictory arguments: torch==2.1.0 and torch==2.2.0"),
        (["torch="], "has nothing after '='"),
        ([], "nothing to check"),
        (["h100-nccl", "torch=2.8"], "images are checked separately from words"),
        (["--all", "h100-nccl"], "--all takes every image"),
        (["--waive", "torch.wheel-arch", "h100-nccl"], "--waive is for components"),
        (["--waive", "torch.weel-arch", "torch=2.8"], "no fact is called 'torch.weel-arch'"),
        (["cuda=banana", "gpu=H1000", "trch=1"], "no component is called 'trch'"),
    ],
)
def test_bad_input_ends_with_2(words: list[str], text: str) -> None:
    refused(envbuild("check", *words), 2, text)


def test_all_mistakes_are_reported_together() -> None:
    done = envbuild("check", "cuda=banana", "gpu=H1000", "trch=1")
    assert done.stderr.count("error: ") == 3


@pytest.mark.slow_unit
def test_shipped_images_have_no_conflict() -> None:
    done = envbuild("check", "--all", "--json")
    assert done.returncode == 0
    assert {answer["verdict"] for answer in json.loads(done.stdout)["answers"]} <= {"valid", "conditional"}


@pytest.mark.slow_unit
def test_check_all_prints_a_line_and_the_conflicts_of_each_image(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for name, layers in (("good", '{ucx: "1.20"}'), ("bad", '{torch: "2.15.0", nccl: "2.20.5"}')):
        text = f"schema: 1\ntarget: h100-ib\nbase: debian:13\nlayers: {layers}\n"
        (tmp_path / "images" / f"{name}.yaml").write_text(text)
    done = envbuild("check", "--all", cwd=tmp_path)
    assert done.returncode == 3
    lines = done.stdout.splitlines()
    images = [line for line in lines if line and not line.startswith(" ")]
    shipped = {path.stem for path in (ROOT / "images").glob("*.yaml")}
    assert [line.split()[1] for line in images[:-1]] == sorted(shipped | {"good", "bad"})
    at = lines.index("conflict     bad")
    assert lines[at + 1].startswith("  images/bad.yaml:4:27: Because ")
    assert "[torch.nccl]" in lines[at + 1]
    assert lines[at + 2].startswith('  hint: write nccl: "2.30.7" in images/bad.yaml:4:27')
    assert images[-1].endswith("facts of one: envbuild check NAME")


@pytest.mark.slow_unit
def test_why_names_the_reason_for_a_version() -> None:
    done = envbuild("check", "gpu=H100", "torch=2.8.0", "nccl", "--why", "nccl")
    assert done.returncode == 0
    assert "nccl==2.27.5 is not taken, because torch==2.8.0's wheel pins nccl 2.27.3" in done.stdout
    refused(envbuild("check", "torch=2.8.0", "--why", "apex"), 2, "'apex' is not part of the request")


@pytest.mark.slow_unit
def test_make_refuses_a_conflict_before_anything_is_fetched(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "images", tmp_path / "project" / "images")
    spec = tmp_path / "project" / "images" / "h100-nccl.yaml"
    spec.write_text(spec.read_text().replace("nccl: {}", 'nccl: "2.20.5"'))
    store = tmp_path / "store"
    done = envbuild("make", "h100-nccl", cwd=tmp_path / "project", ENVBUILD_STORE=str(store))
    refused(
        done,
        3,
        "h100-nccl.yaml:",
        "Because no build of torch==2.15 of channel index fits (torch==2.15's wheel pins nccl",
        "[torch.nccl]",
        'hint: write nccl: "2.30.7" in images/h100-nccl.yaml:9:3',
    )
    assert not [
        path for path in store.rglob("*") if path.is_file() and path.parent.name != "locks" and path.name != MARK
    ]


@pytest.mark.slow_unit
def test_versions_of_an_older_lock_do_not_contradict_the_spec(tmp_path: Path) -> None:
    """`lock` drops them; `check` answered that nccl of the lock conflicts."""
    shutil.copytree(ROOT / "images", tmp_path / "images")
    spec = tmp_path / "images" / "h100-nccl.yaml"
    text = spec.read_text().replace('torch: "2.15"', 'torch: {version: "2.9.1", provider: vendor, channel: cu130}')
    spec.write_text(text.replace('cuda: "13.2"', 'cuda: "13.0"'))
    assert "nccl: 2.30.7" in spec.with_suffix(".lock").read_text()
    done = envbuild("check", "h100-nccl", cwd=tmp_path)
    assert done.returncode == 0 and "nccl             2.27.7       picked" in done.stdout


@pytest.mark.slow_unit
def test_an_empty_fact_file_of_a_project(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "images", tmp_path / "images")
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts" / "own.yaml").write_text("")
    refused(envbuild("check", "torch=2.8.0", cwd=tmp_path), 2, "facts/own.yaml: the file is empty")


@pytest.mark.slow_unit
def test_a_fact_of_a_project_is_used(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "images", tmp_path / "images")
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts" / "own.yaml").write_text(
        """\
schema: 1
facts:
- id: nccl.our-fabric
  kind: forbids
  scope: runtime
  strength: hard
  because: "nccl=={nccl} hangs on our switches"
  source: {type: measured, where: nccl-tests on our cluster, seen: "2026-11-20", how: all_reduce_perf on 16 nodes}
  when: {gpu: H100}
  then: {nccl: "==2.27.3"}
"""
    )
    done = envbuild("check", "gpu=H100", "torch=2.8.0", cwd=tmp_path)
    assert done.returncode == 3
    assert "nccl==2.27.3 hangs on our switches [nccl.our-fabric]" in done.stdout


@pytest.mark.slow_unit
def test_a_cache_that_cannot_be_written_or_is_damaged_changes_nothing(tmp_path: Path) -> None:
    first = envbuild("check", "gpu=H100", "torch=2.8.0", XDG_CACHE_HOME=str(tmp_path / "cache"))
    (entry,) = (tmp_path / "cache").rglob("*.table")
    entry.write_bytes(entry.read_bytes()[:1000])
    (tmp_path / "file").write_text("")
    for folder in ("cache", "file"):
        again = envbuild("check", "gpu=H100", "torch=2.8.0", XDG_CACHE_HOME=str(tmp_path / folder))
        assert (again.returncode, again.stdout) == (0, first.stdout)


@pytest.mark.slow_unit
def test_show_prints_a_table_and_refuses_unknown_components() -> None:
    done = envbuild("matrix", "show", "torch", "channel=index", "--json")
    rows = {row["torch"]: row for row in json.loads(done.stdout)["rows"]}
    assert (rows["2.8.0"]["nccl"], rows["2.8.0"]["torch-cuda"]) == ("2.27.3", "12.8")
    refused(envbuild("matrix", "show", "trch"), 2, "did you mean 'torch'?")
    assert "neuron-sdk" in envbuild("matrix", "show").stdout


@pytest.mark.slow_unit
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("matrix show torch-u", ["torch-ucc"]),
        ("matrix show torch driv", ["driver="]),
        ("matrix show torch arch=ar", ["arch=arm64"]),
        ("check gpu=H10", ["gpu=H100"]),
        ("check h100-n", ["h100-nccl"]),
    ],
)
def test_a_shell_completes_components(words: str, offered: list[str]) -> None:
    asked = {"_ENVBUILD_COMPLETE": "complete_bash", "COMP_WORDS": f"envbuild {words}"}
    asked["COMP_CWORD"] = str(len(words.split()))
    done = CliRunner().invoke(create_app(), prog_name="envbuild", env=asked)
    assert done.stdout.split() == offered


@pytest.mark.slow_unit
def test_lint_warns_of_sources_not_checked_for_months(tmp_path: Path) -> None:
    """Something to know, no mistake: the exit code is 0."""
    for folder in ("images", "facts"):
        (tmp_path / folder).mkdir()
    (tmp_path / "images/any.yaml").write_text("")
    (tmp_path / "facts" / "own.yaml").write_text(
        """\
schema: 1
facts:
- id: own.gcc
  kind: limits
  scope: build
  strength: hard
  because: gcc 99 is not tried
  source: {type: issue, where: "our tracker, thread 7", seen: "2016-11-20"}
  when: {torch: "2.8"}
  then: {gcc: "<99"}
"""
    )
    done = envbuild("matrix", "lint", "--older-than", "100", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "warning: facts/own.yaml:3:3: own.gcc was seen " in done.stderr
    row = next(row for row in json.loads(done.stdout)["findings"] if row["where"] == "facts/own.yaml:3:3")
    assert row["warning"] is True and row["message"].endswith(" months ago, on 2016-11-20")
    quiet = envbuild("matrix", "lint", "--older-than", "9999", cwd=tmp_path)
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert quiet.stdout.endswith("nothing found\n")
