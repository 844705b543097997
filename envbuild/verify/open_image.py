"""A finished image that is open for verification: mounted once, each command in a sandbox of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from envbuild.build.engines.embedded.session import Session
    from envbuild.spec.workspace import Workspace

TASK = "verify"
LONGEST = 900  # seconds that one command may take


@dataclass
class OpenImage:
    """A `Runner` in an open image; threads may use it at the same time.

    `box`: the protections that were in force in all its sandboxes, by name (`Protection` of the embedded engine).
    """

    session: Session
    box: dict[str, bool] = field(default_factory=dict)

    def __call__(self, argv: Sequence[str]) -> tuple[int, str]:
        """Return exit code and output of a command. Raises EngineError."""
        ran = self.session.run(argv, LONGEST)
        for name, active in ran.protection.items():
            self.box[name] = active and self.box.get(name, True)
        return ran.code, ran.output.decode(errors="replace")

    def stop(self) -> None:
        """End the commands that run."""
        self.session.stop()


@contextlib.contextmanager
def open_image(path: Path, env: Mapping[str, str], workspace: Workspace, title: str = "") -> Iterator[OpenImage]:
    """Open a squashfs file for commands with the environment `env`, as the task `TASK` of the workspace's reporter.

    title: describes the task; reported first, because a machine that can mount no squashfs file unpacks it.

    Raises EngineError, VerifyError for a damaged file."""
    from envbuild.build.engines.embedded.session import open_session

    workspace.reporter.start(TASK, title or f"verify {path.name}")
    try:
        with open_session(path, env, workspace.store) as session:
            yield OpenImage(session)
    finally:
        workspace.reporter.finish(TASK)
