"""An image compared with a machine, by the facts of the version matrix: ``doctor --image``, ``verify --host`` and
``check NAME --host``.

Each of the host's versions is compared by itself, so that one that no fact covers does not hide what the others are
known for. What no fact compares is reported as not run."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from envbuild.core.errors import SpecError
from envbuild.doctor.facts.cpu import is_older
from envbuild.doctor.model import ADMINISTRATOR, MINOR, USER, Result, failed, not_run, passed
from envbuild.matrix.answer.check import check
from envbuild.matrix.answer.report import brief_lines
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.solve.request import Ask, locked_asks, override_asks, parse_ask
from envbuild.verify.host_image import HostImage

GROUP = "image"
BY_HOST = "this machine"
DRIVER_LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib/aarch64-linux-gnu/libcuda.so.1", "/usr/lib64/libcuda.so.1",
)  # fmt: skip
GLIBC = re.compile(rb"GLIBC_(\d+\.\d+)\0")


def host_versions(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions that a machine decides: component of the matrix → version, "" where it has none."""
    kernel = re.match(r"\d+\.\d+", facts["kernel"])
    return {
        "driver": facts["nvidia"]["driver"],
        "neuron-driver": facts["neuron"]["driver"],
        "kernel": kernel[0] if kernel else "",
        "slurm": facts["programs"]["slurm"],
        "enroot": facts["programs"]["enroot"],
    }


def host_asks(facts: Mapping[str, Any], matrix: FactTable) -> tuple[tuple[Ask, ...], list[Result]]:
    """Return the machine's versions as a request, and a result for each that the facts do not know."""
    asks, unknown = [], []
    for component, version in host_versions(facts).items():
        if not version:
            continue
        try:
            asks.append(parse_ask(matrix, component, version, by=BY_HOST))
        except SpecError:
            unknown.append(named(not_run(f"the facts do not know {component} {version}"), component))
    return tuple(asks), unknown


def assumed_versions(asks: Sequence[Ask], facts: Mapping[str, Any], matrix: FactTable) -> list[str]:
    """Return what a target states of the versions that a machine decides, where this one has none that is known."""
    known = {ask.component for ask in host_asks(facts, matrix)[0]}
    return [ask.text for ask in asks if ask.component in host_versions(facts).keys() - known]


def image_results(facts: Mapping[str, Any], image: HostImage, matrix: FactTable, target: str = "") -> list[Result]:
    """Return the results of comparing an image with a machine. `target`: that of the machine, if the user names one."""
    results = [
        *([named(target_result(image, target), "target")] if target and image.target else []),
        *version_results(facts, image, matrix),
        named(glibc_result(facts, image), "glibc"),
        named(ofed_result(facts, image), "ofed"),
    ]
    return [replace(result, group=GROUP) for result in results]


def version_results(facts: Mapping[str, Any], image: HostImage, matrix: FactTable) -> Iterator[Result]:
    """Yield a result for each version of the machine, and for each that the image needs and the machine lacks."""
    if image.fault:
        yield named(not_run(f"{image.name}: {image.fault}"), "versions")
        return
    own = locked_asks(image.versions, matrix)
    if image.target and image.target.sm:
        own = override_asks(
            own, [parse_ask(matrix, "gpu", image.target.gpu), parse_ask(matrix, "arch", image.target.arch)]
        )
    asks, unknown = host_asks(facts, matrix)
    yield from unknown
    alone = check(matrix, own)
    have = {ask.component for ask in asks} | {result.check.partition("-")[2] for result in unknown}
    for text, components in {need.text: {*need.when, *need.then} for need in alone.needs}.items():
        if not components & have:
            fix = f"use a node with it; the fact: envbuild check {image.name.removesuffix('.sqsh')}"
            yield named(failed(f"{image.name} needs {text}, which is missing here", ADMINISTRATOR, fix), "needs")
    for ask in asks:
        yield named(version_result(ask, own, image, matrix), ask.component)


def version_result(ask: Ask, own: Sequence[Ask], image: HostImage, matrix: FactTable) -> Result:
    """Return whether one version of the machine works with the image."""
    answer = check(matrix, override_asks(own, [ask]))
    lines = brief_lines(answer)
    text, _, hint = (lines[0] if lines else "").partition("\nhint: ")
    if answer.verdict == "conflict":
        fix = hint or "use another node, or an image for this one"
        return failed(f"{ask.text} of this machine: {text}", USER if ask.component == "slurm" else ADMINISTRATOR, fix)
    if answer.verdict == "unknown":
        return not_run(f"no fact compares {ask.text} with {image.name}: {text}")
    note = f" ({answer.verdict}: {text})" if answer.verdict in ("conditional", "disputed") else ""
    return passed(f"{ask.text} works with {image.name}{note}")


def target_result(image: HostImage, target: str) -> Result:
    """Return whether an image is for a target."""
    own = image.target.name if image.target else ""
    if own == target:
        return passed(f"{image.name} is for {target}")
    fix = f"another image; or copy its spec, and write target: {target}"
    return failed(f"{image.name} is for {own}, and not for {target}", MINOR, fix)


def glibc_result(facts: Mapping[str, Any], image: HostImage) -> Result:
    """Return whether the C library of the image is new enough for the driver's libraries, which the host adds to it."""
    if not facts["nvidia"]["driver"]:
        return not_run("this machine adds no driver to a container")
    if not image.glibc:
        return not_run("the C library of the image is unknown")
    library = next((path for path in map(Path, DRIVER_LIBRARIES) if path.exists()), None)
    needed = needed_glibc(library) if library else ""
    if not needed:
        return not_run("libcuda.so.1 of this machine is not in a usual folder")
    if is_older(image.glibc, needed):
        fix = "choose a newer base image, or an older driver"
        return failed(f"the driver's libcuda needs glibc {needed}, and the image has {image.glibc}", ADMINISTRATOR, fix)
    return passed(f"the driver's libcuda needs glibc {needed}, the image has {image.glibc}")


def needed_glibc(library: Path) -> str:
    """Return the newest version of glibc that a library names, or ""."""
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found = {match[1].decode() for match in GLIBC.finditer(data)}
    except (OSError, ValueError):
        return ""
    return max(found, key=lambda version: tuple(int(part) for part in version.split(".")), default="")


def ofed_result(facts: Mapping[str, Any], image: HostImage) -> Result:
    """Return that no fact compares the drivers of the host with the libraries of an image."""
    host = facts["network"]["ofed"] or "the kernel's own drivers"
    own = image.versions.get("ofed") or image.versions.get("rdma-core")
    if not facts["network"]["ports"]:
        return not_run("this machine has no RDMA device")
    return not_run(f"no fact compares {host} of this machine with {own or 'unknown libraries'} of the image")


def named(result: Result, name: str) -> Result:
    """Return a result with its name."""
    return replace(result, check=f"image-{name}")
