"""facts/derived/torch.yaml: what the torch wheels of the package index are.

Three things are read of wheels: METADATA (of every wheel: patches, machines and Pythons of one release do differ),
``torch/version.py`` (the CUDA version it was built for) and the architecture list that `torch.cuda.get_arch_list`
reports, a string in ``torch/lib/libtorch_python.so`` (of one wheel for each release and machine). Names of packages in
METADATA count only where their markers hold: up to 2.10 the wheels for aarch64 list a whole CUDA set for x86_64.
"""

from __future__ import annotations

import hashlib
import re

from envbuild.matrix.collect.fact_writer import Context, Derived
from envbuild.matrix.collect.torch_facts import make_facts
from envbuild.matrix.collect.torch_rows import BACKENDS, LIBRARY, DeviceCode, TorchRelease, WheelFacts
from envbuild.matrix.facts.index_releases import ANY, Build, Cell, Release, list_releases
from envbuild.matrix.facts.version import oldest_first
from envbuild.net.range_file import MalformedFileError

OLDEST = "1.10.0"
# Of bounded length, and not from the middle of a list: a wheel of 44 kB took gigabytes, and days.
ARCHITECTURES = re.compile(rb"(?<! )((?:sm|compute)_[0-9]{2,3}[af]?(?: (?:sm|compute)_[0-9]{2,3}[af]?){1,40})\0")


def collect(context: Context) -> dict[str, Derived]:
    """Read every torch wheel's metadata and the libraries. Raise InputError."""
    found = [release for release in list_releases(context.index, "torch", OLDEST).values() if release.wheels]
    builds = [build for release in found for build in release.builds()]
    seen = dict(context.each("torch", "reading metadata of torch wheels", lambda build: _seen(context, build), builds))
    samples = [(release, arch) for release in found for arch in sorted({arch for arch, _ in release.wheels})]
    code = dict(
        context.each("torch code", "reading architectures of torch wheels", lambda job: _code(context, *job), samples)
    )
    known = [
        TorchRelease(
            release,
            {build.file.name: seen[build.file.name] for build in release.builds()},
            {arch: code[release.version, arch] for other, arch in samples if other is release},
        )
        for release in found
    ]
    return {"torch": make_facts(known)}


def _seen(context: Context, build: Build) -> tuple[str, WheelFacts]:
    with context.wheels.open(build.file) as wheel:
        if ANY in build.pythons:
            raise MalformedFileError("it is for any Python, and has code for one")
        metadata, text = wheel.metadata(), wheel.read("torch/version.py", 1 << 16)
        return build.file.name, WheelFacts(metadata, cuda_version(text.decode("utf-8", "replace")), _sha256(text))


def _code(context: Context, release: Release, arch: str) -> tuple[Cell, DeviceCode]:
    # Of the oldest Python: wheels for newer ones are added to a release later.
    build = release.wheels[arch, oldest_first(python for other, python in release.wheels if other == arch)[0]]
    with context.wheels.open(build.file) as wheel:
        data = wheel.read(LIBRARY, 1 << 28)
        backends = tuple(name for name in BACKENDS if f"ProcessGroup{name}".encode() in data)
        return (release.version, arch), DeviceCode(architectures(data), backends, _sha256(data))


def cuda_version(text: str) -> str:
    """Return major.minor of ``cuda`` in torch/version.py; empty for None. Raise MalformedFileError."""
    match = re.search(r"^cuda(?:: [^=\n]+)? = (?:'(\d+\.\d+)[\d.]*'|None)$", text, re.MULTILINE)
    if not match:
        raise MalformedFileError("torch/version.py does not name the CUDA version")
    return match[1] or ""


def architectures(library: bytes) -> tuple[str, ...]:
    """Return the architecture list compiled into libtorch_python.so (``sm_80``, ``compute_90``); empty for a CPU build.
    Raise MalformedFileError when there are several."""
    found = {match.decode() for match in ARCHITECTURES.findall(library)}
    if len(found) > 1:
        raise MalformedFileError(f"{LIBRARY} holds several architecture lists: {', '.join(sorted(found))}")
    return tuple("".join(found).split())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
