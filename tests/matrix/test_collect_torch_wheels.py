"""facts/derived/torch.yaml from small wheels with the metadata of torch's wheels."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from envbuild.core.errors import InputError
from envbuild.matrix.collect import torch_wheels
from envbuild.matrix.collect.fact_writer import Derived, DerivedFact
from envbuild.matrix.collect.torch_wheels import architectures, cuda_version
from envbuild.net.range_file import MalformedFileError
from tests.support.torch_wheels import AMD, ARM, SM_2_8, wheel
from tests.support.wheel_server import context, index_site, make_wheel

pytestmark = pytest.mark.unit

X86 = 'platform_system == "Linux" and platform_machine == "x86_64"'


def collect(tmp_path: Path, *wheels: Path) -> Derived:
    return torch_wheels.collect(context(index_site(tmp_path / "simple", list(wheels))))["torch"]


def fact(derived: Derived, id: str) -> DerivedFact:
    return next(fact for fact in derived.facts if fact.id == f"torch.{id}")


def row_pairs(derived: Derived, id: str) -> list[tuple[Mapping[str, object], Mapping[str, object]]]:
    """(when, then) of a fact's rows; `channel` and the version left out, as they are the same in all."""
    short = ("torch", "channel")
    return [
        ({key: value for key, value in row.when.items() if key not in short}, row.then)
        for row in fact(derived, id).rows
    ]


def ids(derived: Derived) -> set[str]:
    return {fact.id.removeprefix("torch.") for fact in derived.facts}


PINS_2_8 = (f"nvidia-cudnn-cu12==9.10.2.21; {X86}", f"nvidia-nccl-cu12==2.27.3; {X86}", f"triton==3.4.0; {X86}")


def test_a_cpu_wheel_that_lists_a_cuda_set(tmp_path: Path) -> None:
    """torch 2.8.0: METADATA for aarch64 lists packages that its markers switch off there."""
    derived = collect(
        tmp_path,
        wheel(tmp_path, "2.8.0", "3.13", AMD, cuda="12.8", sm=SM_2_8, requires=PINS_2_8),
        wheel(tmp_path, "2.8.0", "3.13t", AMD, cuda="12.8", sm=SM_2_8, requires=PINS_2_8),
        wheel(tmp_path, "2.8.0", "3.13", ARM, requires=PINS_2_8),
        wheel(tmp_path, "2.8.0", "3.13t", ARM, requires=PINS_2_8),
    )
    assert row_pairs(derived, "cudnn") == [({"arch": "amd64"}, {"cudnn": "==9.10.2.21"})]
    assert row_pairs(derived, "nccl") == [({"arch": "amd64"}, {"nccl": "==2.27.3"})]
    assert row_pairs(derived, "triton") == [({"arch": "amd64"}, {"triton": "==3.4.0"})]
    assert row_pairs(derived, "cuda-runtime") == [({"arch": "amd64"}, {"torch-cuda": "12.8"})]
    assert row_pairs(derived, "cpu-only") == [({"arch": "arm64"}, {"torch-cuda": "-"})]
    assert row_pairs(derived, "wheel-arch") == [
        ({"arch": "amd64"}, {"sm": {"cubins": ["70", "75", "80", "86", "90", "100", "120"]}}),
        ({"arch": "arm64"}, {"sm": "-"}),
    ]
    assert row_pairs(derived, "python-tags") == [({}, {"python": ["3.13", "3.13t"]})]
    assert row_pairs(derived, "wheel-machine") == [({}, {"arch": ["amd64", "arm64"]})]
    assert "toolkit-pin" not in ids(derived)
    assert "triton-left-out" not in ids(derived)
    assert derived.components["torch"]["values"] == ["2.8.0"]


def test_tags_are_stronger_than_requires_python(tmp_path: Path) -> None:
    """torch 2.5.0 declares >=3.8.0 and has no wheel below 3.9; 3.13 exists for one machine, and without triton."""
    pin = (f'triton==3.1.0; {X86} and python_version < "3.13"',)
    more = {"cuda": "12.4", "sm": "sm_50 sm_90", "requires": pin, "requires_python": ">=3.8.0"}
    derived = collect(
        tmp_path,
        *(wheel(tmp_path, "2.5.0", python, AMD, **more) for python in ("3.9", "3.12", "3.13")),  # type: ignore[arg-type]
        *(wheel(tmp_path, "2.5.0", python, ARM, requires=pin, requires_python=">=3.8.0") for python in ("3.9", "3.12")),
    )
    assert row_pairs(derived, "python-tags") == [
        ({"arch": "amd64"}, {"python": ["3.9", "3.12", "3.13"]}),
        ({"arch": "arm64"}, {"python": ["3.9", "3.12"]}),
    ]
    assert row_pairs(derived, "triton") == [({"arch": "amd64", "python": ["3.9", "3.12"]}, {"triton": "==3.1.0"})]
    assert row_pairs(derived, "triton-left-out") == [({"arch": "amd64", "python": ["3.13"]}, {"triton": "-"})]
    assert fact(derived, "triton-left-out").strength == "warn"


def test_pins_that_moved_to_a_meta_package(tmp_path: Path) -> None:
    """torch 2.12.0: cuda-toolkit by extras, cublas of another minor beside it, packages with and without -cu13; torch
    2.14.0: ranges."""
    linux = 'platform_system == "Linux"'
    toolkit = "cuda-toolkit[cudart,cufft,cupti,curand,cusolver,cusparse,nvjitlink,nvrtc,nvtx]"
    derived = collect(
        tmp_path,
        *(
            wheel(
                tmp_path,
                version,
                "3.13",
                platform,
                cuda="13.0",
                sm="sm_80 sm_90",
                requires=[
                    f"cuda-bindings<14,>=13.0.3; {linux}",
                    f"{toolkit}=={pin}; {linux}",
                    f"nvidia-cublas<=13.1.1.3,>=13.1.0.3; {linux}",
                    f"nvidia-cudnn-cu13==9.20.0.48; {linux}",
                    f"nvidia-nvshmem-cu13==3.4.5; {linux}",
                    f'triton{triton}; {linux} and python_version < "3.15"',
                ],
            )
            for version, pin, triton in (("2.12.0", "13.0.2", "==3.7.0"), ("2.14.0", "13.0.3", "~=3.8.0"))
            for platform in (AMD, ARM)
        ),
    )
    assert [row.when["torch"] for row in fact(derived, "toolkit-pin").rows] == ["==2.14.0", "==2.12.0"]
    assert row_pairs(derived, "toolkit-pin") == [({"cuda-from": "wheels"}, {"cuda": "13.0"})] * 2
    assert row_pairs(derived, "triton") == [({}, {"triton": ">=3.8.0,<3.9"}), ({}, {"triton": "==3.7.0"})]
    assert row_pairs(derived, "cuda-runtime") == [({}, {"torch-cuda": "13.0"})] * 2
    assert row_pairs(derived, "nvshmem") == [({}, {"nvshmem": "==3.4.5"})] * 2
    assert "cpu-only" not in ids(derived)


def test_wheels_of_one_release_that_differ(tmp_path: Path) -> None:
    """1.13.0 lists its packages for every system, 1.13.1 for Linux; 2.0.x for aarch64 lists none at all."""
    derived = collect(
        tmp_path,
        wheel(tmp_path, "1.13.0", "3.10", AMD, cuda="11.7", sm="sm_37 sm_86", requires=["nvidia-cudnn-cu11==8.5.0.96"]),
        wheel(
            tmp_path,
            "1.13.1",
            "3.10",
            AMD,
            cuda="11.7",
            sm="sm_37 sm_86",
            requires=['nvidia-cudnn-cu11 (==8.5.0.96) ; platform_system == "Linux"'],
        ),
        wheel(tmp_path, "2.0.1", "3.10", ARM),
    )
    assert row_pairs(derived, "cudnn") == [({}, {"cudnn": "==8.5.0.96"})] * 2
    assert row_pairs(derived, "cpu-only") == [({}, {"torch-cuda": "-"})]


def test_rows_have_the_source_that_was_read(tmp_path: Path) -> None:
    derived = collect(tmp_path, wheel(tmp_path, "2.8.0", "3.13", AMD, cuda="12.8", sm=SM_2_8, requires=PINS_2_8))
    for id in ("cudnn", "cuda-runtime", "wheel-arch", "process-groups"):
        assert "sha256 " in fact(derived, id).rows[0].note
        assert fact(derived, id).how.startswith("collector torch 1; ")
    assert fact(derived, "process-groups").rows[0].note.startswith("no mpi and no ucc; ")
    assert row_pairs(derived, "process-groups") == [({"arch": "amd64"}, {"torch-ucc": "native"})]


def test_wheels_that_contradict_themselves(tmp_path: Path) -> None:
    made = wheel(tmp_path, "2.8.0", "3.13", AMD, cuda="12.8")
    with pytest.raises(InputError, match="contradict each other about CUDA") as caught:
        collect(tmp_path, made)
    assert "collect/torch_wheels.py" in caught.value.hint


def test_every_unreadable_wheel_is_reported(tmp_path: Path) -> None:
    wheels = [make_wheel(tmp_path, f"torch-2.8.0-cp31{minor}-cp31{minor}-{AMD}.whl") for minor in (1, 2, 3)]
    with pytest.raises(InputError) as caught:
        collect(tmp_path, *wheels)
    assert {finding.where for finding in caught.value.findings} == {path.name for path in wheels}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("__version__ = '1.10.0+cu102'\ndebug = False\ncuda = '10.2'\ngit_version = '36449ea'\nhip = None\n", "10.2"),
        ("__version__ = '1.10.2'\ndebug = False\ncuda = None\ngit_version = 'x'\nhip = None\n", ""),
        ("from typing import Optional\n\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n", "12.8"),
        ("cuda: Optional[str] = None\nhip: Optional[str] = None\nxpu: Optional[str] = None\n", ""),
    ],
)
def test_cuda_version(text: str, wanted: str) -> None:
    assert cuda_version(text) == wanted


def test_a_missing_cuda_version_is_refused() -> None:
    for text in ("", "cudax = '12.8'\n", "cuda = 12.8\n"):
        with pytest.raises(MalformedFileError, match="does not name the CUDA version"):
            cuda_version(text)


def test_architecture_strings() -> None:
    assert architectures(b"peer_access\0sm_37 sm_50 sm_60 sm_70\0invalid") == ("sm_37", "sm_50", "sm_60", "sm_70")
    assert architectures(b"x\1\2sm_80 sm_90a compute_120\0") == ("sm_80", "sm_90a", "compute_120")
    assert architectures(b"sm_80 is a name, sm_90\0") == ()
    assert architectures(b"sm_80 sm_90\0..sm_80 sm_90\0") == ("sm_80", "sm_90")
    with pytest.raises(MalformedFileError, match="several architecture lists"):
        architectures(b"sm_80 sm_90\0sm_70 sm_80\0")


def test_a_version_without_a_label_comes_from_the_index_by_default(tmp_path: Path) -> None:
    derived = collect(tmp_path, wheel(tmp_path, "2.8.0", "3.13", AMD, cuda="12.8", sm=SM_2_8))
    channel = fact(derived, "channel-index")
    assert [(row.when, row.then) for row in channel.rows] == [({"torch": "==2.8.0"}, {"channel": "index"})]
    assert channel.default
    assert channel.node("2026-11-21")["default"] is True
    assert "default" not in fact(derived, "wheel-arch").node("2026-11-21")


def test_a_list_without_an_end_takes_no_time() -> None:
    """It took 1.4 GB of memory, and days, for 5 million of them."""
    began = time.process_time()
    assert architectures(b"sm_80 " * 1_000_000) == ()
    assert time.process_time() - began < 10
