"""Second copies: Debian packages that bring a library which a recipe of the image brings from somewhere else.

A program then gets whichever the loader finds first, and a process that gets both hangs or crashes. The finished image
is looked at for that (`envbuild.verify.singles`); what names of packages alone can show is refused before anything is
fetched."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

from envbuild.errors import Finding
from envbuild.recipe import RecipeEnv, Runtime
from envbuild.recipefile import ask

VERBS = ("libibverbs", "librdmacm")
MPI = ("libmpi", "libfabric", *VERBS)
# Names of packages → libraries that come with them. Source: fields Package and Depends of the indexes of Debian 12 and
# 13 (Ubuntu's names are the same; those of NCCL, cuDNN, NVSHMEM and GDRCopy are NVIDIA's archive's). The libucp and
# libpmix that Open MPI and MPICH depend on are left out: the loader takes the image's own for the same SONAME.
PACKAGES: Mapping[str, tuple[str, ...]] = {
    r"libnccl(2|-dev)": ("libnccl",),
    r"libcudnn\d+(-dev|-headers)?(-cuda-\d+)?": ("libcudnn",),
    r"libgdrapi": ("libgdrapi",),
    r"libnvshmem\d+(-dev)?(-cuda-\d+)?": ("libnvshmem_host",),
    r"libucx0|libucx-dev|ucx-utils": ("libucp", *VERBS),
    r"libfabric1|libfabric-(bin|dev)": ("libfabric", *VERBS),
    r"libpmix2(t64)?|libpmix-(bin|dev)": ("libpmix",),
    r"openmpi-bin|libopenmpi\d+(t64)?|libopenmpi-dev|mpi-default-(bin|dev)|python3-mpi4py": MPI,
    r"mpich|libmpich\d+(t64)?|libmpich-dev": VERBS,
    # two copies of these break the providers, whose private symbols differ (IBVERBS_PRIVATE_34 against _59,
    # NVIDIA-NeMo/Megatron-Bridge#2824)
    r"libibverbs1|libibverbs-dev|ibverbs-(providers|utils)": ("libibverbs",),
    r"librdmacm1(t64)?|librdmacm-dev|rdmacm-utils|perftest": VERBS,
}


@cache
def brought(package: str) -> tuple[str, ...]:
    """The libraries that come with a Debian package (``libnccl2``, ``libnccl2=2.27.3-1+cuda12.9``)."""
    name = package.partition("=")[0]
    return tuple(library for pattern, found in PACKAGES.items() if re.fullmatch(pattern, name) for library in found)


def second_copies(env: RecipeEnv, where: Mapping[str, str]) -> Iterator[Finding]:
    """What is wrong with the Debian packages that the image's recipes install: those that bring a library which another
    recipe provides from elsewhere than Debian packages. `where`: place of each layer in the spec. Two recipes that
    both provide a library are not told here."""
    packages = {name: ask(recipe, "runtime", Runtime, env).debian for name, recipe in env.recipes.items()}
    provides = {name: ask(recipe, "provides", tuple, env) for name, recipe in env.recipes.items()}
    for owner, libraries in provides.items():
        own = set(libraries) - {library for package in packages[owner] for library in brought(package)}
        for name in packages:
            found = {
                package: [library for library in brought(package) if library in own - set(provides[name])]
                for package in packages[name]
                if name != owner
            }
            named = ", ".join(package for package, twice in found.items() if twice)
            if named:
                twice = ", ".join(dict.fromkeys(library for libraries in found.values() for library in libraries))
                because = f"because both bring {twice}, and which one a program gets would be chance"
                choice = hasattr(env.recipes[name], "provider")
                hint = f"compile '{name}' (provider: source), or leave one of the two out"
                if name == "debian-packages":
                    hint = f"remove {named}: the image has {twice} from '{owner}'"
                elif not choice:
                    hint = "leave one of the two out"
                message = f"layer '{name}' installs {named}, which cannot stand beside layer '{owner}', {because}"
                yield Finding(message, where.get(name, ""), hint)
