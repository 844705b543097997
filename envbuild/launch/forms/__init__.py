"""Output forms, one module each: the name of the module is the value of ``--as``.

A module defines `KIND`, an `envbuild.launch.model.Kind`, and ``write(plan)``, which returns an
`envbuild.launch.model.Written`. The first line of its docstring describes it. Nothing else is registered, so that this
folder contains output forms alone.
"""

from __future__ import annotations

import os

FILES = os.listdir(os.path.dirname(__file__))  # noqa: PTH120, PTH208  # `--help` lists the forms: pathlib is slower
FORMS = tuple(sorted(name.removesuffix(".py") for name in FILES if name.endswith(".py") and name != "__init__.py"))
DEFAULT = "srun"
