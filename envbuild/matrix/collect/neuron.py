"""Facts from the release manifest of AWS Neuron (`n2-manifest.json` of aws-neuron/aws-neuron-sdk).

The manifest names for every SDK release its packages, each with a version, the instance families that it supports and,
for Python packages, the Pythons. What it does not name is unknown: it has no version (``na``) of the EFA installer up
to 2.27, it lists new instance families later than the release notes do, and upstream's own images contain NxD
Training on releases whose manifest has none. Only the absence of torch-neuronx is taken as a fact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envbuild.matrix.collect.fact_writer import Derived, DerivedFact, DerivedRow, FlowNode
from envbuild.matrix.collect.neuron_manifest import PACKAGES, NeuronRelease, list_releases
from envbuild.matrix.facts import version
from envbuild.matrix.facts.version import newest_first

# Component → its short name in the ids of facts.
PARTS = {
    "neuron-runtime": "runtime",
    "neuron-collectives": "collectives",
    "neuron-tools": "tools",
    "neuronx-cc": "cc",
    "torch-neuronx": "torch-neuronx",
    "nxdt": "nxdt",
}
WANDERING = "nxdt"  # is used with releases that do not have it
PYTHON_PARTS = ("neuronx-cc", "torch-neuronx", "nxdt")


def make_facts(manifest: Mapping[str, Any], where: str) -> Derived:
    """Return the content of derived/neuron.yaml. `where` is the place (repository@commit path) that its sources name.
    Raise SpecError when `manifest` is not a Neuron manifest."""
    found = list_releases(manifest, where)
    made = [
        _instances(found),
        _without_torch(found),
        _runtime_brought(found),
        *(_parts_of_release(found, component) for component in PARTS),
        *(_release_of_part(found, component) for component in PARTS if component != WANDERING),
        _torch_of_part(found),
        _torch_of_release(found),
        _pythons_of_release(found),
        *(_pythons_of_part(found, component) for component in PYTHON_PARTS),
        _driver_pairs(found),
        _accelerators(found, "neuron-driver", "driver", "container-start"),
        _accelerators(found, "nxdt", "nxdt", "runtime"),
        _efa(found),
    ]
    made_facts = tuple(
        DerivedFact(
            id=f"neuron.{name}",
            question=question,
            kind=kind,
            scope=scope,
            because=because,
            type="metadata",
            where=where,
            how=how,
            rows=tuple(rows),
        )
        for name, question, kind, scope, because, how, rows in made
        if rows
    )
    components = {name: {"values": newest_first(texts)} for name, texts in _every_version(found).items()}
    return Derived(components, {}, made_facts)


def _every_version(found: Sequence[NeuronRelease]) -> dict[str, list[str]]:
    every = {"neuron-sdk": [release.sdk for release in found]}
    for component in (*PARTS, "neuron-driver"):
        every[component] = [package.version for release in found for package in release.of(component)]
    return {name: versions for name, versions in every.items() if versions}


# --- facts: (name, question, kind, scope, because, how, rows)

Made = tuple[str, str, str, str, str, str, list[DerivedRow]]


def _instances(found: Sequence[NeuronRelease]) -> Made:
    """Return rows of the accelerators that a release has packages for."""
    complete = [release for release in found if release.accelerators]
    rows = [_row({"neuron-sdk": [release.sdk], "gpu": release.accelerators}) for release in complete]
    how = "instance families of all packages of the release"
    return "instances", "neuron-sdk-gpu", "limits", "runtime", "", how, rows


def _without_torch(found: Sequence[NeuronRelease]) -> Made:
    component = "torch-neuronx"
    without = [release.sdk for release in found if not release.of(component)]
    rows = [_row({"neuron-sdk": without}, {component: ["*"]})] if without else []
    because = f"neuron-sdk=={{neuron-sdk}} has no {component}"
    return "no-torch-neuronx", "neuron-sdk-torch-neuronx", "forbids", "install", because, "no row of it", rows


def _runtime_brought(found: Sequence[NeuronRelease]) -> Made:
    """Return rows of the runtime library of each release. On Inf1 the framework packages contain it."""
    component, rows = "neuron-runtime", []
    for release in found:
        packages = [package for package in release.of(component) if set(package.accelerators) - {"Inferentia1"}]
        if versions := newest_first(package.version for package in packages):
            rows.append(_row({"neuron-sdk": [release.sdk], "gpu": ["-", "!=Inferentia1"]}, {component: versions}))
    how = f"rows of {_packages(component)}"
    return "runtime-brought", "", "provides", "install", "", how, rows


def _parts_of_release(found: Sequence[NeuronRelease], component: str) -> Made:
    """Return rows release → the versions of one component."""
    name = PARTS[component]
    rows = []
    for release in found:
        versions = {(package.version, gpu) for package in release.of(component) for gpu in package.accelerators}
        rows += _of_release(release.sdk, component, versions)
    return name, f"neuron-sdk-{name}", "limits", "install", "", f"rows of {_packages(component)}", rows


def _release_of_part(found: Sequence[NeuronRelease], component: str) -> Made:
    """Return rows version of a component → the releases that have it, according to the manifest: a request for a
    version is a request for a release."""
    name = PARTS[component]
    home: dict[str, list[str]] = {}
    for release in found:
        for text in {package.version for package in release.of(component)}:
            home.setdefault(text, []).append(f"=={release.sdk}")
    later = f">{found[0].sdk}"
    rows = [_row({component: [text]}, {"neuron-sdk": [*home[text], later]}) for text in newest_first(home)]
    how = f"rows of {_packages(component)} in all releases"
    return f"release-of-{name}", f"neuron-{name}-release", "requires", "install", "", how, rows


def _torch_of_part(found: Sequence[NeuronRelease]) -> Made:
    """Return rows torch-neuronx → the minor release of PyTorch that it is for."""
    versions = {package.version for release in found for package in release.of("torch-neuronx")}
    minors = newest_first(version.truncate(text, 2) for text in versions)
    rows = [_row({"torch-neuronx": [minor]}, {"torch": [minor]}) for minor in minors]
    how = "first numbers of torch-neuronx, which are those of PyTorch (about-neuron/sdk-policy.rst)"
    return "torch", "neuron-torch", "requires", "install", "", how, rows


def _torch_of_release(found: Sequence[NeuronRelease]) -> Made:
    """Return rows of the minor releases of PyTorch that a release has torch-neuronx for. Others are unknown: there are
    packages for PyTorch beside torch-neuronx."""
    rows = []
    for release in found:
        if packages := release.of("torch-neuronx"):
            minors = newest_first(version.truncate(package.version, 2) for package in packages)
            rows.append(_row({"neuron-sdk": [release.sdk], "torch": minors}))
    how = "first numbers of torch-neuronx, which are those of PyTorch (about-neuron/sdk-policy.rst)"
    return "sdk-torch", "neuron-sdk-torch", "limits", "install", "", how, rows


def _pythons_of_release(found: Sequence[NeuronRelease]) -> Made:
    rows = []
    for release in found:
        pairs = {
            (python, gpu) for package in release.packages for python in package.pythons for gpu in package.accelerators
        }
        rows += _of_release(release.sdk, "python", pairs)
    how = f"supported_python_versions of {', '.join(map(_packages, PYTHON_PARTS))}"
    return "sdk-python", "neuron-sdk-python", "limits", "install", "", how, rows


def _pythons_of_part(found: Sequence[NeuronRelease], component: str) -> Made:
    """Return rows version of a Python package → the Pythons; by release where releases differ."""
    name = PARTS[component]
    every: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for release in found:
        for package in release.of(component):
            if package.pythons:
                every.setdefault(package.version, {}).setdefault(package.pythons, []).append(release.sdk)
    rows = []
    for text in newest_first(every):
        for pythons, sdks in every[text].items():
            when = {component: [text], "neuron-sdk": sdks} if len(every[text]) > 1 else {component: [text]}
            rows.append(_row(when, {"python": pythons}))
    how = f"supported_python_versions of {_packages(component)}"
    return f"{name}-python", f"neuron-{name}-python", "limits", "install", "", how, rows


def _driver_pairs(found: Sequence[NeuronRelease]) -> Made:
    """Return the pairs of runtime and driver of one release, which are known to work; by accelerator where only Inf1
    had both."""
    pairs: dict[str, dict[str, set[str]]] = {}
    for release in found:
        for runtime in release.of("neuron-runtime"):
            for driver in release.of("neuron-driver"):
                both = set(runtime.accelerators) & set(driver.accelerators)
                pairs.setdefault(runtime.version, {}).setdefault(driver.version, set()).update(both)
    rows = []
    for runtime_version in newest_first(pairs):
        drivers = pairs[runtime_version]
        general = [text for text in newest_first(drivers) if drivers[text] - {"Inferentia1"}]
        old = [text for text in newest_first(drivers) if drivers[text] == {"Inferentia1"}]
        if general:
            rows.append(_row({"neuron-runtime": [runtime_version], "neuron-driver": general}))
        if old:
            rows.append(_row({"neuron-runtime": [runtime_version], "neuron-driver": old, "gpu": ["Inferentia1"]}))
    how = "rows of aws-neuronx-runtime-lib, libnrt.so and aws-neuronx-dkms of one release for the same instance family"
    return "driver", "neuron-driver-runtime", "limits", "container-start", "", how, rows


def _accelerators(found: Sequence[NeuronRelease], component: str, name: str, scope: str) -> Made:
    """Return rows version of a component → the accelerators that it is for."""
    where: dict[str, set[str]] = {}
    for release in found:
        for package in release.of(component):
            where.setdefault(package.version, set()).update(package.accelerators)
    rows = [_row({component: [text], "gpu": sorted(where[text])}) for text in newest_first(where) if where[text]]
    how = f"instance families of {_packages(component)}"
    return f"{name}-instances", f"neuron-{name}-gpu", "limits", scope, "", how, rows


def _efa(found: Sequence[NeuronRelease]) -> Made:
    """Return rows of the EFA installer that a release names; another one is not known to fail."""
    rows = []
    for release in found:
        if versions := newest_first(package.version for package in release.of("efa-installer")):
            rows.append(_row({"neuron-sdk": [release.sdk], "efa-installer": versions}))
    return "efa-installer", "neuron-sdk-efa", "limits", "runtime", "", "rows of efa-installer", rows


def _of_release(sdk: str, component: str, pairs: set[tuple[str, str]]) -> list[DerivedRow]:
    """Return the rows of one release: the values of `component`, and the fewer values on some accelerators. `pairs`:
    (version, accelerator)."""
    every = tuple(newest_first(text for text, _ in pairs))
    less: dict[tuple[str, ...], list[str]] = {}
    for accelerator in sorted({gpu for _, gpu in pairs}):
        versions = tuple(newest_first(text for text, gpu in pairs if gpu == accelerator))
        if versions != every:
            less.setdefault(versions, []).append(accelerator)
    rows = [_row({"neuron-sdk": [sdk]}, {component: every})] if every else []
    return rows + [_row({"neuron-sdk": [sdk], "gpu": gpus}, {component: versions}) for versions, gpus in less.items()]


def _row(when: Mapping[str, Sequence[str]], then: Mapping[str, Sequence[str]] | None = None) -> DerivedRow:
    """Return a row. Releases under `when` are exact; other versions are bare, because packages append a commit to them
    (``2.9.0.2.12.22436+0f1dac25``, ``2.30.51.0-faafe26f0``)."""
    exact = {
        name: [f"=={text}" for text in values] if name == "neuron-sdk" else values for name, values in when.items()
    }
    allowed = {name: _one(values) for name, values in (then or {}).items()}
    return DerivedRow({name: _one(values) for name, values in exact.items()}, allowed)


def _one(values: Sequence[str]) -> FlowNode:
    return values[0] if len(values) == 1 else list(values)


def _packages(component: str) -> str:
    return " and ".join(package for package, part in PACKAGES.items() if part == component)
