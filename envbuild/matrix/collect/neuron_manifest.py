"""The release manifest of AWS Neuron: `n2-manifest.json` of aws-neuron/aws-neuron-sdk, folder src/helperscripts.

    {"neuron_releases": [{"neuron_version": "2.28.1", "packages": [
      {"name": "neuronx-cc", "version": "2.23.6484.0", "supported_instances": ["trn1", "inf2", "trn2"],
       "supported_python_versions": ["3.10", "3.11", "3.12"]}, …]}, …], …}

Only the packages that facts are about are used. The text is not trusted: sizes are bounded, and everything is checked
before it is used."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from envbuild.core.errors import Finding, InputError, SpecError
from envbuild.core.yaml_nodes import relative_path
from envbuild.core.yaml_reader import short
from envbuild.matrix.facts import version
from envbuild.matrix.facts.version import newest_first

MAX_BYTES = 8 << 20  # the manifest of 51 releases has 0.3 MB
MAX_ITEMS = 5000  # releases, or packages of one release
MAX_FINDINGS = 20
MANIFEST = "it is n2-manifest.json of github.com/aws-neuron/aws-neuron-sdk, folder src/helperscripts"

FAMILY = r"(trn|inf)([0-9]{1,2})[a-z]{0,4}"  # trn1 and trn1n have the same accelerator; "inf." is a slip of the pen
ACCELERATORS = {"trn": "Trainium", "inf": "Inferentia"}

# Package of the manifest → component. Two of the packages are others at another time: libnrt.so is how Inf1 had the
# runtime library up to 2.15, aws-neuron-tools how it had the tools in 2.3.
PACKAGES = {
    "aws-neuronx-runtime-lib": "neuron-runtime",
    "libnrt.so": "neuron-runtime",
    "aws-neuronx-collectives": "neuron-collectives",
    "aws-neuronx-tools": "neuron-tools",
    "aws-neuron-tools": "neuron-tools",
    "neuronx-cc": "neuronx-cc",
    "torch-neuronx": "torch-neuronx",
    "neuronx_distributed_training": "nxdt",
    "aws-neuronx-dkms": "neuron-driver",
    "efa-installer": "efa-installer",
}


class NeuronPackage(NamedTuple):
    """One package of one release: the component that it is, its version, where it runs."""

    component: str
    version: str
    accelerators: tuple[str, ...]
    pythons: tuple[str, ...]


class NeuronRelease(NamedTuple):
    """One SDK release; `accelerators` are those of any of its packages."""

    sdk: str
    packages: tuple[NeuronPackage, ...]
    accelerators: tuple[str, ...]

    def of(self, component: str) -> list[NeuronPackage]:
        return [package for package in self.packages if package.component == component]


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest at `path`. Raise InputError when it cannot be read and SpecError, with every mistake, when it
    is not such a manifest."""
    name = relative_path(path)
    try:
        if not path.is_file():
            raise InputError("no such file" if not path.exists() else "not a file", MANIFEST, name)
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a possible file name"
        raise InputError(f"the Neuron manifest cannot be read: {reason}", where=name) from None
    if len(data) > MAX_BYTES:
        raise InputError(f"the file is larger than {MAX_BYTES >> 20} MiB", MANIFEST, name)
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError) as error:
        reason = f"line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else "it is not JSON"
        raise SpecError(f"not a Neuron manifest: {reason}", MANIFEST, name) from None
    list_releases(manifest, name)
    checked: dict[str, Any] = manifest
    return checked


def list_releases(manifest: Any, name: str) -> list[NeuronRelease]:
    """Return the releases, newest first. Raise SpecError with every mistake; `name` is the manifest's name in
    messages."""
    wrong: list[Finding] = []
    read = list(_releases(manifest, name, wrong))
    every = [release.sdk for release in read]
    wrong += [Finding(f"release {sdk} is listed twice", name) for sdk in newest_first(every) if every.count(sdk) > 1]
    if not read and not wrong:
        wrong.append(Finding("the manifest holds no release", name, MANIFEST))
    if wrong:
        raise SpecError.of(wrong[:MAX_FINDINGS])
    return sorted(_spelled_alike(read), key=lambda release: version.key(release.sdk), reverse=True)


def _spelled_alike(read: Sequence[NeuronRelease]) -> Iterator[NeuronRelease]:
    """Yield the releases with one text for each version: ``2.18.15`` is also written ``2.18.15.0``."""
    texts: dict[tuple[str, version.Key], str] = {}
    for package in sorted(
        (package for release in read for package in release.packages), key=lambda one: len(one.version)
    ):
        texts[package.component, version.key(package.version)] = package.version
    for release in read:
        alike = (one._replace(version=texts[one.component, version.key(one.version)]) for one in release.packages)
        yield release._replace(packages=tuple(alike))


def _releases(manifest: Any, name: str, wrong: list[Finding]) -> Iterator[NeuronRelease]:
    listed = manifest.get("neuron_releases") if isinstance(manifest, dict) else None
    if not isinstance(listed, list) or len(listed) > MAX_ITEMS:
        wrong.append(Finding("not a Neuron manifest: it has no list 'neuron_releases'", name, MANIFEST))
        return
    for number, entry in enumerate(listed):
        at = f"neuron_releases[{number}]"
        sdk = entry.get("neuron_version") if isinstance(entry, dict) else None
        packages = entry.get("packages") if isinstance(entry, dict) else None
        if not isinstance(sdk, str) or not _is_version(sdk):
            wrong.append(Finding(f"{at} has no version 'neuron_version'", name))
        elif not isinstance(packages, list) or len(packages) > MAX_ITEMS:
            wrong.append(Finding(f"{at} ({sdk}) has no list 'packages'", name))
        else:
            rows = [_package(row, f"{at}.packages[{place}]", name, wrong) for place, row in enumerate(packages)]
            read = [row for row in rows if row is not None]
            everywhere = {accelerator for row in read for accelerator in row.accelerators}
            named = tuple(row for row in read if row.component and row.version)
            yield NeuronRelease(sdk, named, tuple(sorted(everywhere)))


def _package(row: Any, at: str, name: str, wrong: list[Finding]) -> NeuronPackage | None:
    """Return one row. Its component is empty for a package that no fact is about, its version where the manifest has
    none."""
    given = row if isinstance(row, dict) else {}
    package, text = given.get("name"), given.get("version")
    if not all(isinstance(given_text, str) and given_text.isprintable() for given_text in (package, text)):
        wrong.append(Finding(f"{at} has no text 'name' or no text 'version'", name))
        return None
    package, text = str(package), str(text)
    lists = [given.get("supported_instances"), given.get("supported_python_versions")]
    if not all(isinstance(listed, list) and all(isinstance(item, str) for item in listed) for listed in lists):
        wrong.append(Finding(f"{at} ({short(package)}): instances and Python versions must be lists of texts", name))
        return None
    instances, pythons = (list(map(str, listed or [])) for listed in lists)
    component = PACKAGES.get(package, "")
    if component and text != "na" and not _is_version(text):
        wrong.append(Finding(f"{at}: {package} '{short(text)}' is not a version", name))
    for python in pythons if component else ():
        if not _is_version(python):
            wrong.append(Finding(f"{at}: {package} names '{short(python)}', which is not a Python version", name))
            return None
    families = (re.fullmatch(FAMILY, instance) for instance in instances)
    accelerators = {ACCELERATORS[family[1]] + family[2] for family in families if family}
    known = tuple(reversed(newest_first(pythons))) if component else ()
    return NeuronPackage(component, "" if text == "na" else text, tuple(sorted(accelerators)), known)


def _is_version(text: str) -> bool:
    try:
        version.key(text)
    except ValueError:
        return False
    return True
