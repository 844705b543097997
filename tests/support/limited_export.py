"""Program: read third-party images in processes of their own with little memory, and print what came of each.

    python -m tests.support.limited_export JOBS

JOBS is a JSON file: a list of `Job`s. The answer is a list of `Outcome`s.
"""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from envbuild.core.errors import EnvbuildError
from envbuild.lock.base_image.file_tree import ImageTree
from envbuild.oci.layers.apply import apply_layers
from envbuild.oci.layers.upper_tree import apply_tar
from envbuild.oci.tar.decompress import convert_layer_errors
from envbuild.oci.tar.unpack_limit import open_blob_file
from tests.support import foreign_images
from tests.support.programs import importing

SPACE = 2 << 30  # bytes of addresses; threads reserve more than they use
TIME = 120  # seconds


@dataclass(frozen=True, slots=True)
class Job:
    """An image to export (`source`), or layers to unpack into a tree of kind `source`: plain, above (each above the
    others), memory. `work`: a folder for the store, the file or the trees; `options` of the export."""

    source: str
    work: str
    layers: Sequence[str] = ()
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`code`: the exit code, -1 for a fault of the program; `text`: the messages; `peak`: bytes of memory."""

    code: int
    text: str
    peak: int = 0
    seconds: float = 0.0


def run_limited(jobs: Sequence[Job], work: Path) -> list[Outcome]:
    """Return what became of each job, in a process that has nothing of the test's memory."""
    (work / "jobs.json").write_text(json.dumps([asdict(job) for job in jobs]))
    command = [sys.executable, "-m", "tests.support.limited_export", str(work / "jobs.json")]
    done = subprocess.run(command, env=importing(), check=True, capture_output=True)
    return [Outcome(**item) for item in json.loads(done.stdout)]


def do(job: Job) -> None:
    work = Path(job.work)
    work.mkdir(parents=True, exist_ok=True)
    if job.source == "plain":
        (work / "tree").mkdir()
        apply_layers([Path(layer) for layer in job.layers], work / "tree")
    elif job.source == "above":
        trees: list[Path] = []
        for number, layer in enumerate(job.layers):
            trees.append(work / f"{number}")
            trees[-1].mkdir()
            apply_tar(io.BytesIO(Path(layer).read_bytes()), trees[-1], trees[:-1])
    elif job.source == "memory":
        tree = ImageTree()
        for layer in job.layers:
            with convert_layer_errors(layer), open_blob_file(Path(layer)) as stream:
                tree.written = {b""}
                tree.apply(stream)
    else:
        at = foreign_images.workspace(work / "store")
        foreign_images.made(job.source, at, work / "image.sqsh", **job.options)


def run_job(job: Job) -> Outcome:
    """Run a job in a child."""
    answer, writing = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(answer)
        resource.setrlimit(resource.RLIMIT_AS, (SPACE, SPACE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(TIME)
        code, text = -1, ""
        try:
            do(job)
            code = 0
        except EnvbuildError as error:
            code, text = error.exit_code, str(error)
        except BaseException as error:  # what the program does not foresee is what the test looks for
            text = f"{type(error).__name__}: {error}"
        os.write(writing, json.dumps([code, text[:50_000]]).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(answer, "rb") as file:
        content = file.read()
    _, status, usage = os.wait4(child, 0)
    code, text = json.loads(content) if content else (-1, f"ended with status {status}")
    return Outcome(code, text, usage.ru_maxrss << 10, time.monotonic() - began)


if __name__ == "__main__":
    print(json.dumps([asdict(run_job(Job(**item))) for item in json.loads(Path(sys.argv[1]).read_text())]))
