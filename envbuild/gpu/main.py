"""The program: `node` runs the checks of one node, `rank` one rank of a job; the other words are parts of them."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from . import copies, driver, kernels, sweep
from .allowed import allowed_variables
from .bench import Bench
from .driver import Devices, parse_devices
from .model import FAIL, NOT_RUN, PASS, Job, Outcome, read_job
from .node_checks import run_checks
from .parts import part_lines
from .rank import run_rank
from .sealed import evidence_document

DEVICES_LIMIT = 60.0  # seconds until the driver has answered
SPEC, VERIFY = 2, 7  # exit codes, as envbuild's own
MODULES = "modules/"  # in a zip file that contains the program


def main(arguments: Sequence[str], job_data: Mapping[str, Any], version: str, text: str = "") -> int:
    """Run the program. Return its exit code. `text`: the program itself, for its own processes."""
    words = list(arguments)
    parts = {"sweep": lambda: sweep.main(words[1:]), "kernels": lambda: kernels.main(words[1]), "copies": copies.main,
             "devices": driver.main}  # fmt: skip
    if words and words[0] in parts:
        return parts[words[0]]()
    parser = argparse.ArgumentParser(description=f"envbuild {version}: checks of GPUs of an image")
    commands = parser.add_subparsers(dest="command", required=True)
    node = commands.add_parser("node", help="run the checks of this node")
    node.add_argument("-o", "--output", default="", help="file for the evidence; without it, lines on stdout")
    rank = commands.add_parser("rank", help="run one rank of a job")
    rank.add_argument("--limit", type=float, default=600.0)
    rank.add_argument("--role", default="")
    rank.add_argument("words", nargs="+")
    options = parser.parse_args(words or ["node", "-o", "gpu-evidence.json"])
    job = read_job(job_data)
    with tempfile.TemporaryDirectory(prefix="envbuild-gpu-") as folder:
        bench = make_bench(job, Path(folder), text)
        if options.command == "rank":
            number, found = run_rank(bench, options.words, options.limit, options.role)
            print("\n".join(part_lines(number, found)), flush=True)
            return 0
        outcomes = run_checks(bench, print_line)
    found = evidence_document(job, outcomes, now(), f"envbuild {version}", place_of(bench))
    if not options.output:
        print("\n".join(part_lines(0, found)), flush=True)
        return 0
    return write_file(options.output, found, outcomes)


def make_bench(job: Job, folder: Path, text: str) -> Bench:
    """Return the bench of this process: its own program as a file, its packed modules, and the GPUs."""
    own: tuple[str, ...] = (sys.executable, "-m", "envbuild.gpu")
    if text:
        program = folder / "envbuild_gpu.py"
        program.write_text(text, encoding="utf-8")
        own = (sys.executable, str(program))
    modules = unpack_modules(folder)
    bench = Bench(job, own, folder, dict(os.environ), modules=modules, outside=modules is not None, notice=print_line)
    output = bench.run_own("devices", limit=DEVICES_LIMIT)
    bench.devices = parse_devices(output.text) or Devices(fault=output.failure("the query of the driver"))
    return bench


def unpack_modules(folder: Path) -> Path | None:
    """Return the folder with the files that a zip file contains beside the program; None: it is not in one."""
    own = Path(sys.argv[0])
    if not (own.is_file() and zipfile.is_zipfile(own)):
        return None
    target = folder / "modules"
    target.mkdir()
    with zipfile.ZipFile(own) as archive:
        for name in archive.namelist():
            if name.startswith(MODULES) and "/" not in name[len(MODULES) :] and name != MODULES:
                path = target / name[len(MODULES) :]
                path.write_bytes(archive.read(name))
                path.chmod(0o755)
    return target


def place_of(bench: Bench) -> dict[str, Any]:
    """Return the facts of the node, without its name."""
    devices = bench.devices
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "driver": devices.driver,
        "cuda": devices.cuda,
        "gpus": [gpu.name for gpu in devices.gpus],
        "outside": bench.outside,
        "nodes": 1,
        "environment": allowed_variables(bench.environ),
    }


def write_file(path: str, found: Mapping[str, Any], outcomes: Sequence[Outcome]) -> int:
    """Write the evidence and print each result; return the exit code: 7 if a check failed, 0 otherwise."""
    for outcome in outcomes:
        print_line(f"{outcome.status:8} {outcome.name}: {outcome.detail}")
    try:
        write_new(Path(path), json.dumps(found, indent=1, sort_keys=True) + "\n")
    except OSError as error:
        print_line(f"error: {path} cannot be written: {error.strerror}")
        return SPEC
    counts = {status: sum(outcome.status == status for outcome in outcomes) for status in (PASS, FAIL, NOT_RUN)}
    print_line(", ".join(f"{number} {status}" for status, number in counts.items()))
    print_line(f"evidence: {path}; on the machine of the project type: envbuild verify --read {path}")
    return VERIFY if counts[FAIL] else 0


def write_new(path: Path, text: str) -> None:
    """Write a file in the place of an earlier one. Another user who can write its folder could have put a link or
    a FIFO there. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o666), "w", encoding="utf-8") as file:  # less the umask
            file.write(text)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def now() -> str:
    """Return the time, UTC."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: UP017 - Python 3.8


def print_line(line: str) -> None:
    """Print a line for the user: stdout is data."""
    print(line, file=sys.stderr, flush=True)
