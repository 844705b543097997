"""AWS Neuron: SDKs as one consistent set, its packages, and the images that refuse it."""

from __future__ import annotations

import re

import pytest

from envbuild.matrix.answer.check import check
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.solve.request import parse_request
from tests.support.recipes import image, line, matches, recipe, table
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
    own = [text for text in runtime.debian if text.startswith("aws-")]
    assert len(own) == 3 and all(re.fullmatch(r"aws-neuronx-[a-z-]+=[0-9.]+-[0-9a-f]{9}", text) for text in own)
    assert not any("dkms" in text or "oci-hook" in text for text in runtime.debian)
    names = {text.partition("==")[0] for text in runtime.core}
    theirs = {"torch-neuronx", "neuronx-cc", "libneuronxla", "nki"}
    assert names == theirs | {"torch", "torch-xla"}
    (index,), (repository,) = sources.indexes, sources.repositories
    assert theirs | {"neuronx-distributed", "neuronx-distributed-training"} <= set(index.packages)
    assert "torch" not in index.packages and "torch-xla" not in index.packages
    assert re.fullmatch(r"[0-9A-F]{40}", repository.key)
    assert (repository.origin, repository.suite, repository.components) == ("apt:aws-neuron", "jammy", ("main",))


@pytest.mark.parametrize(
    ("sdk", "base", "number", "library"),
    [("2.25.0", "ubuntu:22.04", "2.7.0", "libpython3.10"), ("2.28.1", "ubuntu:24.04", "2.9.0", "libpython3.12t64")],
)
def test_torch_and_torch_xla_are_one_release_and_can_be_loaded(sdk: str, base: str, number: str, library: str) -> None:
    """torch-neuronx accepts any torch of its minor version, but torch-xla exists for one of them alone, and its
    _XLAC is linked with the shared library of Python, which a Python interpreter of the distribution does not need."""
    made = recipe("neuron", sdk=sdk)
    env = image(made, target="trn1", base=base)
    runtime = made.runtime(env)
    assert {f"torch=={number}", f"torch-xla=={number}"} <= set(runtime.core)
    assert {library, "g++", "libxml2"} <= set(runtime.debian)
    imports = line(made, env, "import without a device")
    assert imports.tier == "run" and matches(imports, f"imported {number}\n")
    assert not matches(imports, "imported 2.9.1\n") and not matches(imports, "")


@pytest.mark.parametrize(("sdk", "old"), [("2.25.0", True), ("2.26.1", True), ("2.27.1", False), ("2.28.1", False)])
def test_an_sdk_before_2_27_has_a_numpy_1_that_upstream_names(sdk: str, old: bool) -> None:
    made = recipe("neuron", sdk=sdk)
    core = made.runtime(image(made, target="trn1", base="ubuntu:22.04")).core
    assert ("numpy>=1.22.2,<=1.25.2; python_version < '3.12'" in core) == old
    assert any(text.startswith("numpy") for text in core) == old


def test_an_sdk_whose_torch_xla_is_not_known_names_none() -> None:
    made = recipe("neuron", sdk="2.6.0")
    core = made.runtime(image(made, target="trn1", base="ubuntu:20.04")).core
    assert not any(text.startswith(("torch==", "torch-xla")) for text in core)


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
