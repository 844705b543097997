"""The envbuild command as a user types it, and stores with inputs alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from envbuild.core.store.mark import mark_store


class Cli:
    """The envbuild command in one project and store."""

    def __init__(self, project: Path, store: Path, prefix: tuple[str, ...] = (), python: str = sys.executable) -> None:
        self.project, self.store, self.prefix, self.python = project, store, prefix, python

    def run(self, *arguments: str, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        command = [*self.prefix, self.python, "-m", "envbuild", *arguments]
        environ = {**os.environ, "ENVBUILD_STORE": str(self.store), **env}
        done = subprocess.run(command, cwd=self.project, env=environ, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise AssertionError(f"{' '.join(arguments)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def json(self, *arguments: str, **env: str) -> Any:
        """Return the answer of a command; of `make`, `lock` and `fetch` of one image, its part about that image."""
        answer = json.loads(self.run(*arguments, "--json", **env).stdout)
        assert answer["schema"] == 1
        return answer["images"][0] if arguments[0] in ("make", "lock", "fetch") else answer


def with_inputs(source: Path, target: Path, copy: Callable[[str, str], object] = os.link) -> Path:
    """Return a new store in `target` that holds the inputs of another and nothing else: links, or what `copy` makes."""
    target.mkdir(parents=True)
    mark_store(target)
    (target / "blobs").mkdir()
    shutil.copytree(source / "blobs" / "sha256", target / "blobs" / "sha256", copy_function=copy)
    return target
