"""Building blocks of envbuild's own, for recipes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envbuild.plan import bridge
from envbuild.plan.units import INPUTS, WORK
from envbuild.recipe import VENV


def python_wheel(project: str, *, environment: Mapping[str, str] = {}) -> list[Any]:
    """Compile the one sdist of `project` into a wheel in /run/envbuild/out, with the packages that the unit's venv has.

    The folder is fixed and debug information is off: pip's random build folder would get into the binary otherwise.
    """
    folder = f"{WORK}/{project}"
    return [
        bridge.comment(f"{project}: wheel from its source distribution"),
        bridge.environment(variables={"CFLAGS": "-g0", "CXXFLAGS": "-g0", "PATH": f"{VENV}/bin:$PATH", **environment}),
        bridge.shell(
            commands=[
                f"mkdir -p {folder} {INPUTS}/out",
                f"tar -xzf {INPUTS}/sdists/{project}-*.tar.gz -C {folder} --strip-components=1 --no-same-owner",
                f"cd {folder}",
                f'"$UV" build --wheel --no-build-isolation --python {VENV}/bin/python --out-dir {INPUTS}/out .',
            ]
        ),
    ]
