"""facts/derived/torchvision.yaml and others from small files with the metadata of the real ones."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from envbuild.matrix.collect import index_pins
from envbuild.matrix.collect.fact_writer import Derived, DerivedFact
from envbuild.matrix.collect.index_pins import PROJECTS
from envbuild.matrix.collect.pin_rows import ReleaseMetadata
from envbuild.matrix.collect.remote_wheel import Metadata
from envbuild.matrix.facts.index_releases import Build, Release
from envbuild.net.python_index import IndexFile
from tests.support.wheel_server import context, index_site, make_wheel

pytestmark = pytest.mark.unit


def sdist(folder: Path, name: str, *lines: str) -> Path:
    path = folder / f"{name}.tar.gz"
    project, _, version = name.rpartition("-")
    text = "\n".join([f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}", *lines, ""]).encode()
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(f"{name}/PKG-INFO")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    return path


def collect(tmp_path: Path, *files: Path) -> dict[str, Derived]:
    return index_pins.collect(context(index_site(tmp_path / "simple", list(files))))


def facts(derived: Derived) -> dict[str, DerivedFact]:
    return {fact.id.partition(".")[2]: fact for fact in derived.facts}


def row_pairs(fact: DerivedFact) -> list[tuple[object, object]]:
    return [({key: value for key, value in row.when.items() if "=" not in str(value)}, row.then) for row in fact.rows]


AMD, ARM = "manylinux_2_28_x86_64", "manylinux_2_28_aarch64"


def test_a_pin_that_one_machine_has(tmp_path: Path) -> None:
    """torchvision 0.14.1 pins torch on x86_64 only; 0.29.1 requires a range."""
    found = collect(
        tmp_path,
        make_wheel(tmp_path, f"torchvision-0.14.1-cp310-cp310-{AMD}.whl", requires=("torch (==1.13.1)",)),
        make_wheel(tmp_path, f"torchvision-0.14.1-cp310-cp310-{ARM}.whl", requires=("torch",)),
        make_wheel(tmp_path, f"torchvision-0.29.1-cp313-cp313t-{AMD}.whl", requires=("torch (>=2.14.0)",)),
        make_wheel(tmp_path, f"torchvision-0.29.1-cp313-cp313t-{ARM}.whl", requires=("torch (>=2.14.0)",)),
    )["torchvision"]
    pin = facts(found)["torch-pin"]
    assert row_pairs(pin) == [
        ({}, {"torch": ">=2.14.0"}),
        ({"arch": "amd64"}, {"torch": "1.13.1"}),  # bare: 1.13.1+cu117 meets it, as PEP 440 has it
        ({"arch": "arm64"}, {"torch": "*"}),
    ]
    assert (pin.kind, pin.question, pin.strength) == ("requires", "torchvision-torch", "hard")
    assert row_pairs(facts(found)["python-tags"]) == [({}, {"python": ["3.13t"]}), ({}, {"python": ["3.10"]})]
    assert set(facts(found)) == {"torch-pin", "python-tags"}


def test_an_sdist_makes_tags_a_matter_of_compiling(tmp_path: Path) -> None:
    """vLLM has wheels of the stable ABI for x86_64 and an sdist; xformers is for x86_64 alone."""
    found = collect(
        tmp_path,
        make_wheel(
            tmp_path,
            f"vllm-0.11.0-cp38-abi3-{AMD}.whl",
            requires_python="<3.14,>=3.10",
            requires=(
                "torch==2.8.0",
                'xformers==0.0.32.post1; platform_system == "Linux" and platform_machine == "x86_64"',
                "protobuf!=6.30.*,!=6.31.*,>=5.29.6",
                "numpy",
                'flashinfer-python==0.3.1; extra == "flashinfer"',
            ),
        ),
        sdist(tmp_path, "vllm-0.11.0"),
    )["vllm"]
    made = facts(found)
    assert row_pairs(made["python-tags"]) == [({}, {"python": ">=3.10,<3.14"})]
    assert row_pairs(made["python-wheels"]) == [({}, {"python": ["3.10", "3.11", "3.12", "3.13"]})]
    assert row_pairs(made["wheel-machine"]) == [({}, {"arch": "amd64"})]
    assert {made["python-wheels"].strength, made["wheel-machine"].strength} == {"warn"}
    assert row_pairs(made["torch-pin"]) == [({}, {"torch": "2.8.0"})]
    assert row_pairs(made["xformers-pin"]) == [({"arch": "amd64"}, {"xformers": "==0.0.32.post1"})]
    assert row_pairs(made["protobuf-pin"]) == [({}, {"protobuf": [">=5.29.6,<6.30", ">=6.32"]})]
    assert made["protobuf-pin"].kind == "limits"
    assert "numpy-pin" not in made  # any version: it limits nothing
    assert "flash-attn-pin" not in made


def test_projects_with_sdists_only(tmp_path: Path) -> None:
    found = collect(
        tmp_path,
        sdist(tmp_path, "deepspeed-0.19.8", "Requires-Dist: torch>=2.0.0", 'Requires-Dist: triton; extra == "sd"'),
        sdist(tmp_path, "deepspeed-0.16.0"),
        sdist(tmp_path, "flash_attn-2.8.3", "Requires-Python: >=3.9", "Requires-Dist: torch"),
    )
    deepspeed, flash = facts(found["deepspeed"]), facts(found["flash-attn"])
    assert row_pairs(deepspeed["torch-pin"]) == [({}, {"torch": ">=2.0.0"})]
    assert row_pairs(deepspeed["python-tags"]) == [({}, {"python": "3"})] * 2
    assert found["deepspeed"].components["deepspeed"]["values"] == ["0.19.8", "0.16.0"]
    assert row_pairs(flash["python-tags"]) == [({}, {"python": ">=3.9"})]
    assert row_pairs(flash["torch-pin"]) == [({}, {"torch": "*"})]


def test_transformer_engine_is_a_selector(tmp_path: Path) -> None:
    found = collect(
        tmp_path,
        make_wheel(tmp_path, "transformer_engine-2.8.0-py3-none-any.whl", requires=("transformer_engine_cu12==2.8.0",)),
        make_wheel(
            tmp_path,
            "transformer_engine-2.9.0-py3-none-any.whl",
            requires=(
                'transformer_engine_cu12==2.9.0; extra == "core"',
                'transformer_engine_cu13==2.9.0; extra == "core-cu13"',
            ),
        ),
        sdist(tmp_path, "transformer_engine_torch-2.9.0", "Requires-Dist: torch>=2.1"),
    )["transformer-engine"]
    made = facts(found)
    assert row_pairs(made["core-wheel"]) == [({}, {"torch-cuda": ["12", "13"]}), ({}, {"torch-cuda": "12"})]
    assert made["core-wheel"].strength == "conditional"
    assert row_pairs(made["torch-pin"]) == [({}, {"torch": ">=2.1"})]
    assert [row.when for row in made["torch-pin"].rows] == [{"transformer-engine": "==2.9.0"}]


def test_versions_of_libraries_are_those_with_linux_wheels(tmp_path: Path) -> None:
    found = collect(
        tmp_path,
        make_wheel(tmp_path, "nvidia_nccl_cu12-2.26.2.post1-py3-none-manylinux2014_x86_64.whl"),
        make_wheel(tmp_path, "nvidia_nccl_cu12-2.30.7-py3-none-manylinux_2_18_aarch64.whl"),
        make_wheel(tmp_path, "nvidia_nccl_cu13-2.30.7-py3-none-manylinux_2_18_x86_64.whl"),
        make_wheel(tmp_path, "nvidia_nccl_cu11-2.9.0-py3-none-win_amd64.whl"),
    )["nccl"]
    assert found.components == {"nccl": {"values": ["2.30.7", "2.26.2.post1"]}}
    assert found.facts == ()


def test_a_yanked_release_preserves_its_requirements() -> None:
    """torchvision 0.15.0 requires a torch that the index does not have, and is yanked."""
    name = f"torchvision-0.15.0-cp310-cp310-{AMD}.whl"
    release = Release("0.15.0", sdist=IndexFile(name, "", yanked=True), yanked=True)
    known = ReleaseMetadata.of(release, {name: Metadata(("torch (==2.0.0+cu117)",), ">=3.8", "f" * 64)})
    found = index_pins.make_facts(PROJECTS[0], [known])
    made = facts(found)
    assert found.components["torchvision"]["values"] == ["0.15.0"]
    assert row_pairs(made["torch-pin"]) == [({}, {"torch": "==2.0.0+cu117"})]
    assert (made["withdrawn"].kind, made["withdrawn"].strength) == ("forbids", "warn")
    assert [(row.when, row.then) for row in made["withdrawn"].rows] == [({}, {"torchvision": "==0.15.0"})]


def test_a_component_with_a_package_for_each_cuda() -> None:
    """Releases for one CUDA only, and machines that differ, have rows of their own."""

    def release(number: str, *archs: str) -> Release:
        made = Release(number, yanked=False)
        file = IndexFile(f"x-{number}-py3-none-any.whl", "", "")
        made.wheels = {(arch, "any"): Build(file, number, ("any",), (arch,)) for arch in archs}
        return made

    project = index_pins.Project("nvshmem", ("n-cu12", "n-cu13"), read=False, suffixed=True)
    found = {
        "n-cu12": {"3.2": release("3.2", "amd64"), "3.1": release("3.1", "amd64", "arm64")},
        "n-cu13": {"3.2": release("3.2", "amd64", "arm64")},
    }
    cuda, machine = index_pins.suffixed_facts(project, found)
    assert cuda.question == "nvshmem-cuda"
    assert [row.when for row in cuda.rows] == [
        {"nvshmem": "==3.2", "cuda": ["12", "13"]},
        {"nvshmem": "==3.1", "cuda": ["12"]},
    ]
    assert [(row.when, row.then) for row in machine.rows] == [
        ({"nvshmem": "==3.2", "cuda": ["-", "12"]}, {"arch": ["amd64"]}),
        ({"nvshmem": "==3.2", "cuda": ["-", "13"]}, {"arch": ["amd64", "arm64"]}),
        ({"nvshmem": "==3.1"}, {"arch": ["amd64", "arm64"]}),
    ]


def test_a_release_without_wheels_is_not_a_version_of_a_component_that_comes_as_wheels(tmp_path: Path) -> None:
    found = collect(
        tmp_path,
        make_wheel(tmp_path, f"nvidia_nccl_cu12-2.27.3-py3-none-{AMD}.whl"),
        make_wheel(tmp_path, f"nvidia_nccl_cu13-2.28.9-py3-none-{AMD}.whl"),
        sdist(tmp_path, "nvidia_nccl_cu12-2.29.1"),
    )["nccl"]
    assert found.components["nccl"]["values"] == ["2.28.9", "2.27.3"]
