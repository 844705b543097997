"""Programs that tests start."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def import_path(*more: str) -> str:
    """Return the PYTHONPATH with which a program imports envbuild and these helpers as the tests do, and `more`."""
    own = [path for path in sys.path if Path(path).is_relative_to(ROOT) and "site-packages" not in path]
    return os.pathsep.join([*dict.fromkeys([str(ROOT), *own]), *more])


def importing(**env: str) -> dict[str, str]:
    """Return the environment of such a program: of the test run, with `env`."""
    return {**os.environ, "PYTHONPATH": import_path(), **env}
