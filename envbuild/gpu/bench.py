"""The place where checks run: programs with a limit of time, ranks side by side, and their logs of NCCL."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..doctor.processes import Output, Programs, ignore
from .driver import Devices
from .model import FailedError, Job, NotRunError
from .tools.nccl_log import NcclLog, parse_nccl_log
from .tools.ucx import used_lanes

LIMIT = 600.0  # seconds of one program
LOG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV,NET,GRAPH", "UCX_LOG_LEVEL": "info"}
NCCL_TESTS = "/opt/nccl-tests/bin"  # prefix of the recipe
FOLDERS = (NCCL_TESTS, "/opt/nvbandwidth/bin", "/opt/ucx/bin", "/opt/perftest/bin")
LARGEST_LOG = 64 << 20  # bytes


@dataclass
class Bench:
    """The place of one pass. `own`: the words that start this program again; `folder`: for logs, removed later.

    `modules`: the folder of files that were packed with the program; `outside`: it is not the image that runs;
    `tests_version`: of nccl-tests, once one printed it. `notice` receives a line about a program that
    takes long.
    """

    job: Job
    own: tuple[str, ...]
    folder: Path
    environ: Mapping[str, str]
    devices: Devices = field(default_factory=Devices)
    modules: Path | None = None
    outside: bool = False
    notice: Callable[[str], object] = ignore
    runs: int = 0
    tests_version: str = ""

    @property
    def gpus(self) -> int:
        return len(self.devices.gpus)

    def find(self, name: str) -> str:
        """Return the path of a program. Raises NotRunError."""
        folders = [str(self.modules)] if self.modules else []
        path = os.pathsep.join([*folders, self.environ.get("PATH", os.defpath), *FOLDERS])
        found = Programs({**self.environ, "PATH": path}).find(name)
        if not found:
            raise NotRunError(f"{name} is not on this machine" if self.outside else f"{name} is not in the image")
        return found

    def run(self, words: Sequence[str], env: Mapping[str, str] = {}, limit: float = LIMIT) -> Output:
        """Run a program to its end."""
        return self.run_ranks(words, [env], limit)[0]

    def run_own(self, *words: str, env: Mapping[str, str] = {}, limit: float = LIMIT) -> Output:
        """Run a part of this program in a process of its own."""
        return self.run((*self.own, *words), env, limit)

    def run_ranks(self, words: Sequence[str], envs: Iterable[Mapping[str, str]], limit: float = LIMIT) -> list[Output]:
        """Run a program several times at once, with these variables; return the ends."""
        libraries: dict[str, str] = {}
        if self.modules and words[0].startswith(f"{self.modules}/"):
            above = self.environ.get("LD_LIBRARY_PATH", "")
            libraries["LD_LIBRARY_PATH"] = f"{self.modules}:{above}".rstrip(":")
        programs = [Programs({**self.environ, **libraries, **env}, limit, self.notice, largest=0) for env in envs]
        try:
            for one in programs:
                one.start(*words)
            return [one.output(*words) for one in programs]
        finally:
            for one in programs:
                one.close()

    def logged(self) -> tuple[dict[str, str], Path]:
        """Return variables with which each process writes its logs of NCCL and UCX, and the folder with the logs."""
        self.runs += 1
        folder = self.folder / f"logs-{self.runs}"
        folder.mkdir()
        files = {"NCCL_DEBUG_FILE": f"{folder}/nccl.%h.%p", "UCX_LOG_FILE": f"{folder}/ucx.%h.%p"}
        return {**LOG, **files}, folder


def read_logs(folder: Path) -> tuple[NcclLog, ...]:
    """Return the logs of NCCL in a folder, one for each process."""
    return tuple(parse_nccl_log(text) for text in log_texts(folder, "nccl"))


def read_lanes(folder: Path) -> tuple[str, ...]:
    """Return the lanes that the logs of UCX in a folder state."""
    return used_lanes("\n".join(log_texts(folder, "ucx")))


def log_texts(folder: Path, program: str) -> list[str]:
    """Return the texts of the logs of a program."""
    texts = []
    for path in sorted(folder.glob(f"{program}.*")):
        with path.open("rb") as file:
            texts.append(file.read(LARGEST_LOG).decode("utf-8", "replace"))
    return texts


def rank_variables(ranks: int, device: int | None = None) -> list[dict[str, str]]:
    """Return the variables of each rank of a job on this machine. `device`: the one GPU of all."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return [
        {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank if device is None else device),
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        for rank in range(ranks)
    ]


def check_output(output: Output, name: str) -> None:
    """Raise FailedError for a program that did not end well."""
    if output.fault or output.code:
        raise FailedError(
            output.failure(name), "run it with NCCL_DEBUG=INFO; envbuild doctor --log FILE explains its log"
        )
