"""The declared content of an image: what every check of the audit compares the image's report with.

`envbuild.verify.expectations` derives it from the lock and the recipes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from envbuild.inspector.report import SINGLES as COUNTED

DRIVER_LIBRARIES = (
    "libcuda.so.1",
    "libcudadebugger.so.1",
    "libnvidia-*.so.*",
    "libnvcuvid.so.1",
    "libnvoptix.so.1",
)
SINGLES = dict.fromkeys(COUNTED, 1)
# Their kernels are made at run time from link-time code; the one cubin inside is none of them (measured in 12.2).
WITHOUT_CUBINS = ("*/libcufft.so.*", "*/libcufftw.so.*")
# Libraries for newer GPUs alone, which their Python code loads on those only (torchao 0.18.0, prototype/mx_formats/
# kernels.py: is_sm_at_least_100).
NEWER_GPUS = ("*/torchao/_C_mxfp8.*.so",)


@dataclass(frozen=True, slots=True)
class Expectations:
    """The declared content of an image.

    `debian`, `python`: name → version.
    `python_also`: names of distributions without a declared version (wheels that were built here).
    `python_more`: there may be further ones that are not named.
    `complete`: nothing else may be installed (False on a base image, which has its own packages, and whose own faults
    are reported but do not count).
    `singles`: library → how many files of it may exist at most.
    `sm`: "90", or "" without a GPU.
    `cpu`: the oldest CPU ("x86-64-v3"), or "" when it is not known.
    `sm_exempt`: path patterns of CUDA libraries that need not contain code for the GPU.
    `modules`: extension modules by dotted name.
    `driver_libraries`: patterns of names that only the host has.
    """

    debian: Mapping[str, str] = field(default_factory=dict)
    python: Mapping[str, str] = field(default_factory=dict)
    python_also: tuple[str, ...] = ()
    python_more: bool = False
    complete: bool = True
    singles: Mapping[str, int] = field(default_factory=lambda: dict(SINGLES))
    sm: str = ""
    cpu: str = ""
    sm_exempt: tuple[str, ...] = (*WITHOUT_CUBINS, *NEWER_GPUS)
    modules: tuple[str, ...] = ()
    driver_libraries: tuple[str, ...] = DRIVER_LIBRARIES
