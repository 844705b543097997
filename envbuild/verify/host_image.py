"""An image as a machine needs it to be known: its versions, its C library, its target. From a spec and its lock, or
from a squashfs file of any origin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from envbuild.core.errors import SpecError
from envbuild.lock.lock_head import read_head
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.project import Project
from envbuild.spec.target import Target, load_target
from envbuild.spec.workspace import with_site_drivers
from envbuild.squashfs.read.tree import SquashTree
from envbuild.verify.contents.metadata import ImageMetadata, read_metadata
from envbuild.verify.contents.squashfs_path import find_squashfs_file

NO_VERSIONS = "its lock names no version that depends on a machine"
COMPAT = re.compile(r"cuda-compat-(\d+)-(\d+)$")  # NVIDIA's Debian packages


@dataclass(frozen=True, slots=True)
class HostImage:
    """An image. `versions`: component of the matrix → version; `glibc`: "" if unknown; `target`: None if its file
    names none that this project has; `fault`: why `versions` is empty."""

    name: str
    versions: Mapping[str, str] = field(default_factory=dict)
    glibc: str = ""
    target: Target | None = None
    fault: str = ""


def read_host_image(name: str) -> HostImage:
    """Return the image called NAME, or of a squashfs file. Raises SpecError, and VerifyError for a damaged file."""
    file = find_squashfs_file(name)
    return image_of_file(file) if file else image_of_spec(name)


def image_of_spec(name: str) -> HostImage:
    """Return an image by its spec and lock."""
    project = with_site_drivers(Project.of(name))
    spec = load_image_spec(name, project)
    lock = read_head(project.lock_path(spec.path))
    target = load_target(spec.target, project)
    fault = "" if lock.settled else NO_VERSIONS if lock.inputs else f"it has no lock: envbuild lock {spec.name}"
    return HostImage(spec.name, lock.settled, spec_glibc(spec.distribution), target, fault)


def image_of_file(file: Path) -> HostImage:
    """Return an image by the records in its file, and by its Debian packages."""
    with SquashTree(file) as tree:
        within = read_metadata(tree)
    versions = dict(within.lock.settled) if within.lock else {}
    if compat := compat_version(within):
        versions["cuda-compat"] = compat
    without = NO_VERSIONS if within.lock else "the file has no lock: envbuild did not build it"
    fault = "" if versions else within.lock_error or without
    libc = within.debian.get("libc6", "")
    target = target_of(within, with_site_drivers(Project.find()))
    return HostImage(file.name, versions, re.match(r"[\d.]*", libc)[0], target, fault)  # type: ignore[index]


def compat_version(within: ImageMetadata) -> str:
    """Return the CUDA of the compat libraries in an image: 13.2; or ""."""
    found = [match for name in within.debian if (match := COMPAT.match(name))]
    return f"{found[0][1]}.{found[0][2]}" if found else ""


def target_of(within: ImageMetadata, project: Project) -> Target | None:
    """Return the target that an image was built for, if the project has it."""
    name = within.origin.get("target")
    try:
        return load_target(str(name), project) if name else None
    except SpecError:
        return None


def spec_glibc(distribution: str) -> str:
    """Return the C library of a distribution: 2.41; "" for one that envbuild does not know."""
    from envbuild.core.distributions import DISTRIBUTIONS

    found = DISTRIBUTIONS.get(distribution)
    return ".".join(str(part) for part in found.glibc) if found else ""
