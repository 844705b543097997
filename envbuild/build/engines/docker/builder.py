"""One build with BuildKit: all units at once, then each unit of the image as an image of its own, for its layers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envbuild.build.engines.base import BuildOptions
from envbuild.build.engines.build_program import jobs_argument, run_build
from envbuild.build.engines.docker import error_report
from envbuild.build.engines.docker.daemon import PREFIX, Daemon
from envbuild.build.plan.units import Plan
from envbuild.core.console import Reporter
from envbuild.core.errors import EngineError
from envbuild.core.programs import run_program
from envbuild.core.store.store import Store
from envbuild.oci.docker_engine import START, connect_engine

CONTAINERFILE = "Containerfile.docker"
HOST_NAME = "BUILDKIT_SANDBOX_HOSTNAME=envbuild"  # from BuildKit 0.9 on; before, it is buildkitsandbox


@dataclass(frozen=True, slots=True)
class Builder:
    """BuildKit in `daemon`; `work` is a folder that goes away with this process, `log` has the output."""

    daemon: Daemon
    store: Store
    work: Path
    log: Path

    def environment(self) -> dict[str, str]:
        """Return a minimal environment: no proxy and no login of the user reaches BuildKit."""
        config = self.work / "config"
        config.mkdir(exist_ok=True)
        plugins = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "cli-plugins"
        with contextlib.suppress(FileExistsError):
            (config / "cli-plugins").symlink_to(plugins)
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(config),
            "DOCKER_CONFIG": str(config),
            "DOCKER_HOST": PREFIX + self.daemon.socket,
            "DOCKER_BUILDKIT": "1",
            "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
            "TMPDIR": str(self.work),
        }

    def build(self, plan: Plan, context: Path, target: str, reporter: Reporter, options: BuildOptions) -> str:
        """Build a stage and all that it needs; return the id of its image. Raises BuildError, EngineError."""
        iid = self.work / "iid"
        arguments = [*self.daemon.program.build(), "--network", "none", "--progress", "plain", "--iidfile", str(iid)]
        arguments += [*jobs_argument(plan, options), "--build-arg", HOST_NAME, "--target", target]
        arguments += ["--no-cache"] if options.rebuild else []
        arguments += ["-f", str(context / CONTAINERFILE), str(context)]
        code = run_build(arguments, self.environment(), self.log, "docker", reporter)
        if code:
            raise error_report.build_error(plan, code, self.log, self.store)
        return iid.read_text().strip()

    def save(self, images: Sequence[str], archive: Path) -> Path:
        """Write images as one Docker archive, in which they share layers. Raises EngineError."""
        command = [self.daemon.program.path, "save", "--output", str(archive), *images]
        done = run_program(command, env=self.environment(), text=True)
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            raise EngineError(
                f"Docker cannot save the layers: {lines[-1] if lines else f'exit code {done.returncode}'}",
                hint="docker system df shows the disk that it uses; read the log of dockerd",
            )
        return archive

    def remove(self, images: Sequence[str]) -> None:
        """Remove images from the list of the daemon. Their layers remain in the cache of BuildKit."""
        import docker.errors
        import requests

        with contextlib.suppress(EngineError), contextlib.closing(connect_engine(START)) as engine:
            for image in images:
                with contextlib.suppress(docker.errors.DockerException, requests.RequestException, OSError):
                    engine.images.remove(image)  # without force: one that the user named remains
