"""Libraries in Debian packages and in wheels, known by the names of the packages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

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
    # libtorch1.8 of Ubuntu 22.04, 1.13 of Debian 12, 2.6 of Debian 13, which has one with CUDA in contrib; not
    # libtorch3c2 of Ubuntu 20.04, which is another Torch
    r"libtorch(-cuda)?-(dev|test)|libtorch(-cuda-)?\d+\.\d+|python3-torch(-cuda)?": ("libtorch",),
    r"python3-torch(audio|text|vision|-cluster|-ignite|-scatter|-sparse)|python3-(baler|skorch|tabnet)": ("libtorch",),
}
# Names of Python packages → libraries in their wheels, under the SONAME that others load. Source: the lists of files of
# the wheels for x86-64 on the package index, in the versions named. Left out are packages whose copies have names of
# their own (libucp-b39b3ed9.so in nixl-cu12 and -cu13 1.5.1, libibverbs-1de1263b.so in pyverbs 56.0rc1). The index
# has no wheels of libfabric and UCC; nvidia-nccl-cu110 and their like are warnings without a library.
WHEELS: Mapping[str, tuple[str, ...]] = {
    # nvidia/nccl/lib/libnccl.so.2 in all of them: cu11 2.21.5, cu12 2.18.3 and 2.32.3, cu13 2.32.3
    r"nvidia-nccl-cu\d\d": ("libnccl",),
    # nvidia/cudnn/lib/libcudnn.so.9 (cu11 9.10.2, cu12 and cu13 9.28.0), nvidia/cudnn_jit/lib/libcudnn.so.9 (9.27.0)
    r"nvidia-cudnn(-jit)?-cu\d\d": ("libcudnn",),
    # nvidia/nvshmem/lib/libnvshmem_host.so.3: cu11 3.2.5, cu12 and cu13 3.8.0
    r"nvidia-nvshmem-cu\d\d": ("libnvshmem_host",),
    # libucx/lib/libucp.so.0: cu11 1.18.1, cu12 and cu13 1.22.0
    r"libucx-cu\d\d": ("libucp",),
    # lib/libmpi.so.40, lib/openmpi/libfabric.so.1 and libucp.so.0: 4.1.8 and 5.0.11 (which has libpmix.so.2 as well)
    r"openmpi": ("libmpi", "libfabric", "libucp"),
    # lib/libmpi.so.12, lib/mpich/libfabric.so.1 and libucp.so.0: 4.1.3 and 5.0.2
    r"mpich": ("libmpi", "libfabric", "libucp"),
    # lib/libmpi.so.12: 2021.15.0 (with lib/libfabric.so.1) and 2021.19.0 (without); intellibs/lib in impi 2019.4
    r"impi(-rt)?": ("libmpi",),
}
# Names of Python packages → the one of those above that each of their versions requires, directly or indirectly.
# Source: Requires-Dist of ucxx and libucxx 0.52.0, ucx-py 0.45.0, nvshmem4py 0.4.1, impi-devel 2021.19.0.
REQUIRING: Mapping[str, str] = {
    r"(?:libucxx|ucxx|ucx-py)-(cu\d\d)": r"libucx-\1",
    r"nvshmem4py-(cu\d\d)": r"nvidia-nvshmem-\1",
    r"impi-devel": r"impi-rt",
}


@cache
def debian_libraries(package: str) -> tuple[str, ...]:
    """Return the libraries that come with a Debian package (``libnccl2``, ``libnccl2=2.27.3-1+cuda12.9``)."""
    name = package.partition("=")[0]
    return tuple(library for pattern, found in PACKAGES.items() if re.fullmatch(pattern, name) for library in found)


@cache
def wheel_libraries(package: str) -> tuple[str, ...]:
    """Return the libraries in the wheel of a Python package (``nvidia-nccl-cu13``)."""
    return next((found for pattern, found in WHEELS.items() if re.fullmatch(pattern, package)), ())


def required_wheel(package: str) -> str:
    """Return the package of `WHEELS` that a Python package always requires (``libucx-cu13`` for ``ucxx-cu13``); empty
    for all others."""
    found = ((re.fullmatch(pattern, package), wheel) for pattern, wheel in REQUIRING.items())
    return next((match.expand(wheel) for match, wheel in found if match), "")


def python_name(requirement: str) -> str:
    """Return ``nvidia-nccl-cu13`` for ``Nvidia_NCCL.cu13>=2`` (PEP 503), without `packaging`, whose import takes
    long."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", requirement.strip(), maxsplit=1)[0]).lower()
