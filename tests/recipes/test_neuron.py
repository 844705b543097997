"""AWS Neuron: SDKs as one consistent set, its packages, and the images that refuse it."""

from __future__ import annotations

import re

import pytest

from envbuild.matrix.answer.check import check
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.solve.request import parse_request
from tests.support.recipes import image, recipe, table
from tests.support.recipes import matrix as matrix  # a fixture

pytestmark = pytest.mark.unit


def neuron_sdks() -> list[str]:
    return list(table("neuron").SDKS)


@pytest.mark.parametrize("sdk", neuron_sdks())
def test_every_sdk_is_one_consistent_set(sdk: str, matrix: FactTable) -> None:
    """The versions of one column are compatible on Trainium1, by the facts of upstream's manifest."""
    made = recipe("neuron", sdk=sdk)
    components = made.matrix(image(made, target="trn1", base="ubuntu:22.04"))
    words = [f"{component}{text}" for component, text in components.items()]
    verdict = check(matrix, parse_request(["gpu=Trainium1", *words], matrix)).verdict
    # 2.30.0: the documents end training with it, and AWS has an image for training of it
    assert verdict in ("valid", "conditional", *(["disputed"] if sdk == "2.30.0" else []))


def test_sdks_are_not_mixed(matrix: FactTable) -> None:
    new, old = (recipe("neuron", sdk=sdk) for sdk in ("2.30.0", "2.25.0"))
    env = image(target="trn1", base="ubuntu:22.04")
    words = [f"{name}{text}" for name, text in {**new.matrix(env), "neuronx-cc": old.matrix(env)["neuronx-cc"]}.items()]
    assert check(matrix, parse_request(["gpu=Trainium1", *words], matrix)).verdict == "conflict"


def test_neuron_packages_are_exact_and_come_from_neuron_alone() -> None:
    made = recipe("neuron", sdk="2.30.0")
    env = image(made, target="trn1", base="ubuntu:24.04")
    runtime, sources = made.runtime(env), made.sources(env)
    assert all(re.fullmatch(r"aws-neuronx-[a-z-]+=[0-9.]+-[0-9a-f]{9}", text) for text in runtime.debian)
    assert not any("dkms" in text or "oci-hook" in text for text in runtime.debian)
    names = {text.partition("==")[0] for text in runtime.core}
    assert names == {"torch-neuronx", "neuronx-cc", "libneuronxla", "nki"}
    (index,), (repository,) = sources.indexes, sources.repositories
    assert names | {"neuronx-distributed", "neuronx-distributed-training"} <= set(index.packages)
    assert "torch" not in index.packages and "torch-xla" not in index.packages
    assert re.fullmatch(r"[0-9A-F]{40}", repository.key)
    assert (repository.origin, repository.suite, repository.components) == ("apt:aws-neuron", "jammy", ("main",))


@pytest.mark.parametrize(
    ("target", "beside", "because"),
    [
        ("trn1", (), None),
        ("h100-ib", (), "take a target with Trainium or Inferentia2"),
        ("cpu", (), "nodes without an accelerator"),
        ("trn1", ("cuda",), "do not run CUDA"),
    ],
)
def test_images_that_neuron_refuses(target: str, beside: tuple[str, ...], because: str | None) -> None:
    made = recipe("neuron")
    found = made.refusals(image(made, *(recipe(name) for name in beside), target=target))
    assert (found == ()) if because is None else (because in str(found[0]))


def test_neuron_is_for_one_architecture() -> None:
    made = recipe("neuron")
    env = image(made, target="gb200-nvl")
    assert any("no Neuron packages for arm64" in str(refusal) for refusal in made.refusals(env))


def test_neuron_checks_accept_the_output_of_the_programs() -> None:
    made = recipe("neuron", sdk="2.25.0")
    checks = {item.name: item for item in made.verify(image(made, target="trn1", base="ubuntu:22.04"))}
    packages = checks["neuron: the packages are those of the SDK"].expect
    assert re.search(packages, "2.7.0.2.9.9357+08e1f40d 2.20.9961.0")
    assert not re.search(packages, "2.7.0.2.9.9357+08e1f40d 2.21.18209.0")
    library = checks["neuron: the loader finds the runtime library"].expect
    assert re.search(library, "\tlibnrt.so.1 (libc6,x86-64) => /opt/aws/neuron/lib/libnrt.so.1\n")
    assert not re.search(library, "\tlibnrt.so.1 (libc6,x86-64) => /usr/lib/libnrt.so.1\n")
    assert {item.tier for item in checks.values()} == {"run", "gpu"}
