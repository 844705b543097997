"""Images without a lock can be locked: facts relate the versions that their Python packages resolve to."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from envbuild.lock.resolve import resolve_in
from envbuild.matrix.facts.compile import load_fact_table
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.pick_versions import check_locked_versions
from envbuild.spec.project import Project

pytestmark = pytest.mark.unit
ROOT = Path(__file__).parents[2]
METASEQ = {"hydra-core": "1.1.2", "omegaconf": "2.1.1", "protobuf": "3.20.2", "setuptools": "59.5.0"}
# Components among the Python packages of each image, as the package index resolved them on 2026-11-25.
RESOLVED = {
    "azure-ndv4-opt": {**METASEQ, "torch": "1.10.1+cu113", "numpy": "1.24.4", "nccl": "2.14.3", "tokenizers": "0.20.3"},
    "azure-ndv5-opt": {
        **METASEQ,
        "torch": "2.1.2+cu118",
        "numpy": "1.26.4",
        "triton": "2.1.0",
        "nccl": "2.18.3",
        "tokenizers": "0.23.3",
    },
    "azure-deepspeed": {
        "torch": "2.4.1",
        "numpy": "2.2.6",
        "triton": "3.0.0",
        "cudnn": "9.1.0.70",
        "nccl": "2.20.5",
        "deepspeed": "0.16.9",
        "setuptools": "81.0.0",
        "pydantic": "2.14.3",
    },
    "lambda-neox-a100": {
        "torch": "2.0.1+cu118",
        "numpy": "1.26.4",
        "triton": "2.0.0",
        "flash-attn": "2.5.6",
        "deepspeed": "0.16.5",
        "protobuf": "3.20.1",
        "setuptools": "81.0.0",
        "pydantic": "2.14.3",
    },
    "lambda-neox-20b": {
        "torch": "1.12.1+cu116",
        "numpy": "1.22.0",
        "flash-attn": "0.2.2",
        "deepspeed": "0.3.15",
        "protobuf": "3.20.1",
        "setuptools": "75.3.4",
    },
    "lambda-neox-a6000": {
        "torch": "1.13.1+cu117",
        "numpy": "1.24.4",
        "deepspeed": "0.16.5",
        "protobuf": "3.20.1",
        "setuptools": "75.3.4",
        "pydantic": "2.10.6",
    },
    "h100-doca": {
        "torch": "2.15.0",
        "numpy": "2.5.5",
        "triton": "3.9.0",
        "cudnn": "9.26.0.51",
        "nccl": "2.30.7",
        "nvshmem": "3.7.2",
        "setuptools": "84.2.1",
    },
    # NVIDIA's images contain its own builds. torch, torchvision and flash-attn of 25.10 are those of ai-dynamo/dynamo
    # (container/Dockerfile), the NumPy of 24.04 is that of users' reports; the others are examples.
    "h100-ucc-ngc": {
        "torch": "2.9.0a0+145a3a7bda",
        "torchvision": "0.24.0a0+094e7af5",
        "flash-attn": "2.7.4.post1+25.10",
        "transformer-engine": "2.8.0",
        "triton": "3.4.0",
        "numpy": "1.26.4",
        "protobuf": "6.31.1",
        "setuptools": "78.1.1",
        "pydantic": "2.12.3",
    },
    "h100-ucc-ngc-cu124": {
        "torch": "2.3.0a0+6ddf5cf85e",
        "torchvision": "0.18.0a0",
        "flash-attn": "2.4.2",
        "transformer-engine": "1.5.0",
        "triton": "3.0.0",
        "numpy": "1.24.4",
        "protobuf": "4.24.4",
        "setuptools": "68.2.2",
    },
    "azure-msccl": {
        "torch": "2.7.0a0+7c8ec84dab",
        "torchvision": "0.22.0a0",
        "flash-attn": "2.7.3",
        "transformer-engine": "2.1.0",
        "triton": "3.2.0",
        "numpy": "1.26.4",
        "protobuf": "4.24.4",
        "setuptools": "70.3.0",
    },
    # the NumPy and protobuf of these are examples: those that the wheels of Neuron take were not read
    "trn1-bert": {
        "torch": "2.7.0",
        "torch-neuronx": "2.7.0.2.9.9357+08e1f40d",
        "neuronx-cc": "2.20.9961.0",
        "numpy": "1.25.2",
        "protobuf": "7.36.2",
        "triton": "3.3.0",
        "cudnn": "9.5.1.17",
        "nccl": "2.26.2",
        "setuptools": "81.0.0",
    },
    "trn1-neuronx": {
        "torch": "2.9.0",
        "torch-neuronx": "2.9.0.2.12.22436+0f1dac25",
        "neuronx-cc": "2.23.6484.0+3b612583",
        "numpy": "2.5.5",
        "protobuf": "7.36.2",
        "triton": "3.5.0",
        "cudnn": "9.10.2.21",
        "nccl": "2.27.5",
        "nvshmem": "3.3.20",
        "setuptools": "84.2.1",
    },
}


@pytest.mark.parametrize("name", RESOLVED)
def test_an_image_without_a_lock_can_be_locked(name: str) -> None:
    """A lock ends with an error if no fact relates two of the versions that it holds, those of the venv included."""
    project = Project.find(ROOT)
    found = resolve_in(load_image_spec(name, project), project)
    table = load_fact_table(project.facts())
    assert check_locked_versions(found.spec, found.target, table, RESOLVED[name]).verdict in ("valid", "conditional")


@pytest.mark.parametrize("name", ["azure-deepspeed", "h100-ucc-ngc-cu124"])
def test_the_trainer_of_an_image_resumes_with_its_torch(name: str) -> None:
    """From 4.51 on transformers loads the state of random numbers, and then anything, only beside torch 2.6."""
    spec = load_image_spec(name, Project.find(ROOT))
    wanted = {Requirement(text).name: Requirement(text) for text in spec.recipes["python-packages"].packages}  # type: ignore[attr-defined]
    assert Version(RESOLVED[name]["torch"]) < Version("2.6")
    assert not wanted["transformers"].specifier.contains("4.51.3")
    assert wanted["transformers"].specifier.contains("4.50.3")
