"""Versions that a spec leaves out are picked, locked, explained, waived; combinations that cannot work are refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from envbuild.cli.check_images import check_image
from envbuild.core.errors import ConflictError, SpecError, UnknownError
from envbuild.lock.lock_head import read_head
from envbuild.lock.lockfile import read_lock, write_lock
from envbuild.lock.request import lock_request
from envbuild.lock.resolve import resolve_in
from envbuild.matrix.facts.compile import load_fact_table
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.matrix_request import key_place, shipped_versions
from envbuild.spec.pick_versions import check_locked_versions
from envbuild.spec.project import Project
from envbuild.spec.resolve import Resolution
from envbuild.spec.target import load_target as load_target
from tests.support.shipped_facts import shipped_matrix

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
GPU = "{torch: {}, cuda: {}, nccl: {}, deepspeed: {}}"


def resolved(
    folder: Path, layers: str, target: str = "h100-ib", more: str = "", forget: tuple[str, ...] = ()
) -> Resolution:
    path = folder / "images" / "x.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"schema: 1\ntarget: {target}\nbase: debian:13\nlayers: {layers}\n{more}")
    project = Project(folder)
    return resolve_in(load_image_spec(str(path), project), project, forget)


def test_missing_versions_become_the_newest_compatible_ones(tmp_path: Path) -> None:
    resolution = resolved(tmp_path, GPU)
    chosen = resolution.chosen
    assert set(chosen) == {"torch", "cuda", "nccl", "deepspeed"}
    assert resolution.answer is not None
    # the toolkit and NCCL are those of that torch's own wheel, not the newest that there are
    assert chosen["cuda"] == resolution.answer.chosen["torch-cuda"]
    assert chosen["nccl"] == resolution.answer.chosen["nccl"]
    assert {name: recipe.version for name, recipe in resolution.spec.recipes.items()} == chosen
    core = lock_request(resolution).units["venv-core"].python
    assert f"torch=={chosen['torch']}" in core
    assert f"nvidia-nccl-cu13=={chosen['nccl']}" in core
    assert any(wanted.startswith("cuda-toolkit[") and wanted.endswith(f"=={chosen['cuda']}.*") for wanted in core)


def test_one_version_decides_the_others(tmp_path: Path) -> None:
    older = resolved(tmp_path, '{torch: "2.13", cuda: {}, nccl: {}}').chosen
    assert (older["cuda"], older["nccl"]) == ("13.0", "2.29.7")


def test_picked_versions_are_locked_until_an_upgrade(tmp_path: Path) -> None:
    newest = resolved(tmp_path, GPU).chosen
    lock = dataclasses.replace(
        read_lock(ROOT / "images" / "cpu-ucx.lock"), image="x", chosen={"torch": "2.14.0", "nccl": "2.30.7"}
    )
    write_lock(lock, tmp_path / "images" / "x.lock")
    kept = resolved(tmp_path, GPU).chosen
    assert (kept["torch"], kept["cuda"]) == ("2.14.0", "13.0")
    assert resolved(tmp_path, GPU, forget=("torch",)).chosen["torch"] == newest["torch"]
    assert resolved(tmp_path, GPU, forget=("*",)).chosen == newest
    # and drops it where it no longer fits the spec
    assert resolved(tmp_path, '{torch: {}, cuda: "13.2", nccl: {}, deepspeed: {}}').chosen["torch"] == newest["torch"]


def test_a_conflict_is_refused_with_place_reason_and_hint(tmp_path: Path) -> None:
    with pytest.raises(ConflictError) as error:
        resolved(tmp_path, '{torch: "2.15.0", nccl: "2.20.5"}')
    (finding,) = error.value.findings
    assert "x.yaml:4:27" in finding.where
    assert "[torch.nccl]" in finding.message
    place = finding.where
    assert finding.hint.startswith(f'write nccl: "2.30.7" in {place}; or override')
    assert "{fact: torch.nccl, reason: …}" in finding.hint


@pytest.mark.slow_unit
def test_without_a_small_fix_the_hint_names_the_conflict(tmp_path: Path) -> None:
    """CUDA 11.3 for an H100, with a torch and kernels of its time: a waiver does not make nvcc compile for it."""
    text = "schema: 1\nextends: azure-ndv4-opt\ntarget: {}\n"
    for target, cuda, other in (
        ("h100-ib", "cuda>=11.8", "sm_89 or older"),
        ("b200-ib", "cuda>=12.8", "sm_89 or older"),
    ):
        path = tmp_path / f"{target}.yaml"
        path.write_text(text.format(target))
        project = Project(tmp_path)
        with pytest.raises(ConflictError) as error:
            resolve_in(load_image_spec(str(path), project), project)
        finding = next(one for one in error.value.findings if "[cuda.targets]" in one.message)
        before, _, waiver = finding.hint.partition("; or override the fact")
        assert "cuda==11.3 and torch==1.10.1+cu113 are incompatible with sm_" in before
        assert f"take {cuda}" in before and f"a target of {other}" in before
        assert "{fact: cuda.targets, reason: …}" in waiver
        result = check_image(str(path))
        assert result.answer.conflicts[0].fixes == () and f"hint: {before}" in result.text


def test_all_conflicts_of_a_spec_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(ConflictError) as error:
        resolved(tmp_path, '{torch: "2.8.0", nccl: "2.20.5", cuda: "12.0"}')
    assert len(error.value.findings) >= 2


def test_combinations_without_facts_are_refused_as_unknown(tmp_path: Path) -> None:
    with pytest.raises(UnknownError) as error:
        resolved(tmp_path, '{torch: "2.99.0"}')
    assert error.value.exit_code == 9
    assert any("waivers" in finding.hint for finding in error.value.findings)


def test_a_waived_fact_no_longer_binds_and_is_recorded(tmp_path: Path) -> None:
    waiver = "waivers: [{fact: torch.nccl, reason: tested here}]\n"
    resolution = resolved(tmp_path, '{torch: "2.15.0", nccl: "2.29.7"}', more=waiver)
    assert resolution.answer is not None
    assert [item.fact for item in resolution.answer.waived] == ["torch.nccl"]
    assert lock_request(resolution).spec["waivers"] == [{"fact": "torch.nccl", "reason": "tested here"}]


def test_a_waiver_of_nothing_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        resolved(tmp_path, GPU, more="waivers: [{fact: torch.ncll, reason: a slip}]\n")
    (finding,) = error.value.findings
    assert finding.where.endswith("x.yaml:5:11")
    assert finding.hint == "did you mean 'torch.nccl'?"


def test_a_driver_floor_holds_versions_back(tmp_path: Path) -> None:
    (tmp_path / "targets").mkdir()
    text = (ROOT / "envbuild" / "targets" / "h100-ib.yaml").read_text()
    (tmp_path / "targets" / "old.yaml").write_text(text.replace('floor: "580.65.06"', 'floor: "535.86.10"'))
    assert resolved(tmp_path, "{torch: {}}", target="old").chosen["torch"].startswith("2.10")


def test_the_head_of_a_lock_equals_the_lock(tmp_path: Path) -> None:
    path = ROOT / "images" / "h100-nccl.lock"
    whole, head = read_lock(path), read_head(path)
    assert (head.inputs, head.chosen, head.settled) == (whole.inputs, whole.chosen, whole.settled)
    assert whole.settled["nccl"] == whole.chosen["nccl"] == whole.versions["nccl"]
    assert {"torch.nccl", "torch.wheel-arch", "gpu.sm", "driver.minor-compat"} <= set(whole.facts)
    for text in ("", "inputs: [", "inputs: sha256:x\nchosen: 3\n", "\x00"):
        (tmp_path / "x.lock").write_text(text)
        assert read_head(tmp_path / "x.lock").chosen == {}
    assert read_head(tmp_path / "none.lock") == ("", {}, {})


def test_the_locked_versions_of_a_shipped_image_are_checked_again() -> None:
    project = Project(ROOT)
    spec = load_image_spec("h100-nccl", project)
    target = load_target(spec.target, project)
    matrix = load_fact_table(project.facts())
    versions = dict(read_head(ROOT / "images" / "h100-nccl.lock").settled)
    assert check_locked_versions(spec, target, matrix, versions).verdict in ("valid", "conditional")
    with pytest.raises(ConflictError, match=r"torch\.cudnn"):
        check_locked_versions(spec, target, matrix, {**versions, "cudnn": "9.1.0.70"})


SOURCE = "{version: 2.15.0, provider: source, commit: 0123456789abcdef0123456789abcdef01234567}"


@pytest.mark.parametrize(
    "layers",
    [
        f'{{cuda: "13.2", nccl: {{provider: source}}, torch: {SOURCE}}}',
        '{ucx: "1.20"}',
        '{cuda: "13.2", nvshmem: {}}',
        '{torch: {version: "2.8", provider: vendor, channel: cu128}}',
    ],
)
def test_questions_that_do_not_apply_have_no_answer(tmp_path: Path, layers: str) -> None:
    """A torch that is compiled here has no wheel; UCX and NVSHMEM are used with a GPU and without torch."""
    answer = resolved(tmp_path, layers).answer
    assert answer is not None
    assert (answer.unknown, answer.exit_code) == ((), 0)


@pytest.mark.slow_unit
def test_an_unknown_version_of_one_layer_does_not_affect_others(tmp_path: Path) -> None:
    project, path = Project(tmp_path), tmp_path / "x.yaml"
    layers = f'{{cuda: "13.2", nccl: {{provider: source}}, torch: {SOURCE}, apex: "25.09"}}'
    path.write_text(f"schema: 1\ntarget: h100-ib\nbase: debian:13\nlayers: {layers}\n")
    answer = check_image(str(path)).answer
    assert [(one.id, one.of[0]) for one in answer.unknown] == [("apex-torch", "apex")]
    assert answer.chosen["nccl"] == "2.30.7"  # newer ones are unknown with this toolkit
    with pytest.raises(UnknownError) as error:
        resolve_in(load_image_spec(str(path), project), project)
    assert {finding.where.rpartition("/")[2] for finding in error.value.findings} == {"x.yaml:4:144"}


def hints(folder: Path, text: str) -> list[str]:
    path = folder / "x.yaml"
    path.write_text(f"schema: 1\n{text}")
    return [fix for conflict in check_image(str(path)).answer.conflicts for fix in conflict.fixes]


def test_no_hint_changes_the_target_of_an_image(tmp_path: Path) -> None:
    vendor = '{cuda: {version: "11.6", provider: apt}, torch: {version: "1.12.1", provider: vendor, channel: cu116}}'
    found = hints(tmp_path, f"target: b200-ib\nbase: ubuntu:20.04\nlayers: {vendor}\n")
    assert not [fix for fix in found if "gpu" in fix or "sm=" in fix or "driver" in fix]
    text = check_image(str(tmp_path / "x.yaml")).text
    assert 'take cuda: {version: "12.8", provider: apt} in ' in text and "others that go with it" in text


def test_a_base_is_proposed_that_has_the_python(tmp_path: Path) -> None:
    vendor = '{cuda: {version: "11.6", provider: apt}, torch: {version: "1.12.1", provider: vendor, channel: cu116}}'
    found = hints(tmp_path, f"target: lambda-a100\nbase: debian:13\nlayers: {vendor}\n")
    place = key_place(load_image_spec(str(tmp_path / "x.yaml"), Project(tmp_path)), "base")
    assert set(found) == {
        f'write base: ubuntu:20.04 with python: "3.8" in {place}'
    }  # of the Python, and of the C library that this nvcc takes


@pytest.mark.parametrize("version", ['version: "2.8.0", ', 'version: "2.8", ', ""])
def test_an_unknown_channel_is_a_mistake_of_the_spec(tmp_path: Path, version: str) -> None:
    with pytest.raises(SpecError) as error:
        resolved(tmp_path, f"{{torch: {{{version}provider: vendor, channel: cu127}}}}")
    (finding,) = error.value.findings
    assert finding.where.endswith("x.yaml:4:10")
    assert "channel 'cu127'" in finding.message
    assert "cu126, cu128" in finding.hint


@pytest.mark.slow_unit
@pytest.mark.parametrize(
    "text, message",
    [
        ("target: h100-ib\nbase: ubuntu:22.04\nlayers: {neuron: {sdk: 2.25.0}}\n", "layer 'neuron' is incompatible"),
        (
            'target: h100-ib\nbase: debian:13\nlayers: {cuda: "12.8", torch: "2.8.0"}\n'
            "waivers: [{fact: torch.toolkit, reason: tried}]\n",
            "layer 'cuda' is incompatible",
        ),
    ],
)
def test_refusals_of_recipes_replace_conflicts_of_facts(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(f"schema: 1\n{text}")
    result = check_image(str(path))
    assert (result.verdict, result.code) == ("conflict", 3)
    assert [finding.message for finding in result.refusals if message in finding.message]
    assert "Because" not in result.text
    assert [one["where"] for one in result.data["refusals"]] == [finding.where for finding in result.refusals]


def test_a_package_of_the_base_in_a_version_that_no_fact_reads_is_unknown() -> None:
    """A base image states any text in its metadata."""
    warnings: list[str] = []
    found = shipped_versions({"setuptools": "1_0", "torch": "2.8.0"}, shipped_matrix(), warnings.append)
    assert found == {"torch": "2.8.0"}
    (line,) = warnings
    assert line.startswith("setuptools of the image is not checked: '1_0' is not a version")
