"""The program ``docker`` that starts BuildKit in a daemon: ``docker buildx build``, or ``docker build`` of a release
before 23, which has a BuildKit client built in.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from envbuild.core.errors import EngineError
from envbuild.core.install_hint import install_hint
from envbuild.core.programs import run_program
from envbuild.core.text import human_list

BUNDLED = 23  # the first release of the program without a BuildKit client of its own


@dataclass(frozen=True, slots=True)
class Program:
    """A program ``docker`` that can start BuildKit: with the plugin buildx, or by itself."""

    path: str
    buildx: bool

    def build(self) -> list[str]:
        """Return the beginning of the command line of a build that leaves an image in the daemon."""
        if self.buildx:
            return [self.path, "buildx", "build", "--builder", "default", "--load"]
        return [self.path, "build"]


class UnusableError(EngineError):
    """A daemon that cannot be used: the `step` that failed, why (the message) and the fix (the hint)."""

    def __init__(self, step: str, reason: str, fix: str) -> None:
        super().__init__(reason, hint=fix)
        self.step = step


def find_program() -> Program:
    """Return the first ``docker`` on PATH that can start BuildKit. Raises UnusableError with those that cannot."""
    places = [Path(folder, "docker") for folder in os.environ.get("PATH", os.defpath).split(":") if folder]
    found = [path for path in dict.fromkeys(places) if shutil.which(str(path))]
    if not found:
        raise UnusableError("find the program", "docker is not on PATH", install_hint("docker.io"))
    older = []
    for path in found:
        if run_program([path, "buildx", "version"]).returncode == 0:
            return Program(str(path), True)
        text = run_program([path, "--version"], text=True).stdout.strip()
        release = re.search(r"(\d+)\.[\d.]+", text)
        if release and int(release[1]) < BUNDLED:
            return Program(str(path), False)
        older.append(f"{path} ({release[0] if release else 'of an unknown version'})")
    raise UnusableError(
        "find the program",
        f"{human_list(older, 3)} cannot start BuildKit: the plugin buildx is missing",
        install_hint("docker-buildx"),
    )
