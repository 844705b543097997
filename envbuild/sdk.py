"""The interface for recipes: the one module of envbuild that the authors of recipes import.

Names of this module are stable: they keep their meaning through all releases of one major version, independent of the
module that defines them. Every other module may move or change at any time. Importing it is cheap: the container
emitter behind the building blocks is loaded with the first block that is made.

- **a recipe**: `Recipe`, or `Released` and `DebianOrSource` for components compiled from the releases of their
repository
- **what its methods return**: `Sources` with `Archive`, `Git`, `GitProject`, `PipSource`, `AptRepository`,
  `PythonIndex`; `Runtime`; `Check`; `Refusal`; `OptionError`
- **building blocks** for `build()`: `source`, `autotools`, `cmake`, `python_wheel`, `tidy`, `git_that_knows`,
  `git_origin`, `stubs`, `debian_toolkit`; primitives and blocks of HPCCM with their keywords checked: `shell`,
  `environment`, `comment`, `apt_get`, `generic_autotools`, `generic_cmake`, `generic_build`
- **lines of `verify()`** that several recipes share: `imports`, `cubins`, `only_this_gpu`, `two_ranks`, `written`
- **places** in a unit and in the image: `INPUTS`, `WORK`, `folder`, `VENV`, `PYTHON`, `CUOBJDUMP`, `DRIVER`,
  `STUB_DRIVER`
"""

from __future__ import annotations

from envbuild.build.blocks import rdma
from envbuild.build.blocks.blocks import autotools, cmake, folder, python_wheel, source, tidy
from envbuild.build.blocks.checks import (
    CUOBJDUMP,
    PYTHON,
    STUB_DRIVER,
    beside_torch,
    cubins,
    cubins_alone,
    imports,
    only_this_gpu,
    two_ranks,
    two_ranks_alone,
    two_ranks_beside_torch,
    written,
)
from envbuild.build.blocks.debian_toolkit import debian_toolkit
from envbuild.build.blocks.deepspeed_requirements import DEEPSPEED, DEEPSPEED_NO_GPU
from envbuild.build.blocks.driver_stubs import DRIVER, stubs
from envbuild.build.blocks.git_shim import git_that_knows
from envbuild.build.blocks.hpccm import (
    apt_get,
    comment,
    environment,
    generic_autotools,
    generic_build,
    generic_cmake,
    shell,
)
from envbuild.build.steps import INPUTS, WORK
from envbuild.spec.git_origin import git_origin
from envbuild.spec.recipe import (
    VENV,
    AptRepository,
    Archive,
    Check,
    Git,
    GitProject,
    OptionError,
    PipSource,
    PythonIndex,
    Recipe,
    RecipeEnv,
    Refusal,
    Runtime,
    Sources,
    unknown_words,
)
from envbuild.spec.released_recipe import DebianOrSource, Released, newest

__all__ = [
    "CUOBJDUMP",
    "DEEPSPEED",
    "DEEPSPEED_NO_GPU",
    "DRIVER",
    "INPUTS",
    "PYTHON",
    "STUB_DRIVER",
    "VENV",
    "WORK",
    "AptRepository",
    "Archive",
    "Check",
    "DebianOrSource",
    "Git",
    "GitProject",
    "OptionError",
    "PipSource",
    "PythonIndex",
    "Recipe",
    "RecipeEnv",
    "Refusal",
    "Released",
    "Runtime",
    "Sources",
    "apt_get",
    "autotools",
    "beside_torch",
    "cmake",
    "comment",
    "cubins",
    "cubins_alone",
    "debian_toolkit",
    "environment",
    "folder",
    "generic_autotools",
    "generic_build",
    "generic_cmake",
    "git_origin",
    "git_that_knows",
    "imports",
    "newest",
    "only_this_gpu",
    "python_wheel",
    "rdma",
    "shell",
    "source",
    "stubs",
    "tidy",
    "two_ranks",
    "two_ranks_alone",
    "two_ranks_beside_torch",
    "unknown_words",
    "written",
]
