"""Output forms, one module each: the name of the module is the value of ``--as``.

A module defines `KIND`, an `envbuild.launch.model.Kind`, and ``write(plan)``, which returns an
`envbuild.launch.model.Written`. The first line of its docstring describes it. Nothing else is registered, so that this
folder contains output forms alone.
"""

from __future__ import annotations

from pathlib import Path

FORMS = tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__"))
DEFAULT = "srun"
