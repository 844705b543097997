"""Units of Debian packages: the base of an image, and packages on top of it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from envbuild.build.blocks import hpccm
from envbuild.build.plan.unit_inputs import debian_input, unit_lock
from envbuild.build.plan.units import Blob, Input, Unit
from envbuild.build.steps import INPUTS, Step
from envbuild.lock.debian.dummy_packages import DummyPackage
from envbuild.lock.unit_names import BASE, built_recipe, in_image, root_unit

if TYPE_CHECKING:
    from envbuild.lock.model import BaseImage, Lock


def base_unit(lock: Lock) -> Unit:
    """Return the base of an image: the layers of a base image, or a distribution made of its packages."""
    return foreign_base(lock, lock.base_image) if lock.base_image else debian_base(lock)


def foreign_base(lock: Lock, image: BaseImage) -> Unit:
    """Return the layers of a base image as they are; nothing is run."""
    blobs = tuple(Blob(f"{number:03}", sha256, size) for number, (sha256, size, _) in enumerate(image.layers))
    return Unit(
        name=BASE,
        title=image.reference,
        layers=tuple(blob.name for blob in blobs),
        inputs=(Input("layers", "files", blobs),),
        steps=(),
        epoch=lock.epoch,
    )


def debian_base(lock: Lock) -> Unit:
    """Return a distribution as debootstrap and mmdebstrap make it: the essential packages are unpacked (Unit.seed),
    then installed over themselves; then what every image has."""
    found = unit_lock(lock, BASE)
    return Unit(
        name=BASE,
        title=f"{lock.base} from {len(found.debian)} packages",
        seed=found.essential,
        inputs=(debian_input(lock, BASE),),
        steps=(
            Step("touch /var/lib/dpkg/status /var/lib/dpkg/available", "an empty package database"),
            Step(
                f"cd {INPUTS}/debs && \\\n    dpkg --force-depends --install {word_per_line(found.essential)}",
                "the essential packages and apt, configured",
            ),
            *hpccm.steps([hpccm.comment("what every image has"), hpccm.apt_get(ospackages=list(found.requested))]),
        ),
        epoch=lock.epoch,
    )


def package_unit(lock: Lock, unit: str, title: str) -> Unit:
    """Return the unit of packages on top of the base, with dummy packages for those that a recipe replaces. A unit that
    is not part of the image is the root of a build."""
    found = unit_lock(lock, unit)
    dummies = [
        hpccm.shell(commands=list(dummy_package_commands(DummyPackage.of(text), lock.arch))) for text in found.replaced
    ]
    instead = "the image compiles what these would bring" if in_image(unit) else "the host's driver has these libraries"
    title_comment = [hpccm.comment(f"in name only: {instead}")]
    return Unit(
        name=unit if in_image(unit) else root_unit(built_recipe(unit)),
        title=title,
        lowers=(BASE,),
        inputs=(debian_input(lock, unit),),
        steps=hpccm.steps(
            [*(title_comment if dummies else []), *dummies, hpccm.apt_get(ospackages=list(found.requested))],
        ),
        in_image=in_image(unit),
        epoch=lock.epoch,
    )


def dummy_package_commands(dummy: DummyPackage, arch: str) -> Iterator[str]:
    """Yield the commands that register a dummy package with dpkg."""
    folder = f"/tmp/{dummy.name}"
    yield f"mkdir -p {folder}/DEBIAN"
    yield f"printf '%s\\n' {shlex.join(dummy.control(arch))} > {folder}/DEBIAN/control"
    yield f"dpkg-deb --build --root-owner-group {folder} {folder}.deb"
    yield f"dpkg --install {folder}.deb"
    yield f"rm -r {folder} {folder}.deb"


def word_per_line(words: Sequence[str]) -> str:
    """Return the words of a command, each on a line of its own."""
    return "".join(f" \\\n        {word}" for word in words).lstrip(" ")
