"""Commands inside an image or a failed unit, on a throw-away upper directory: `envbuild run`, verify's checks,
--shell-on-fail."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from envbuild.build.engines.embedded import unit_process
from envbuild.build.engines.error_report import setup_error
from envbuild.build.plan.units import SYSTEM_PATH
from envbuild.core.console import Reporter
from envbuild.core.store.store import Store
from envbuild.core.userns.namespaces import SetupError
from envbuild.core.userns.process import Child, spawn
from envbuild.core.userns.removal import remove_trees
from envbuild.core.userns.streams import Streams
from envbuild.squashfs.read.superblock import check_image

TIMED_OUT = 124  # as timeout(1)
TOO_MUCH = 125  # more output than LARGEST
LARGEST = 32 << 20  # bytes of output that are captured; the report of an image has a few MiB
LAST = 1 << 16  # bytes of a larger output that are returned
SHELL = "if [ -x /bin/bash ]; then exec /bin/bash -i; else exec /bin/sh -i; fi"


def run_in_root(
    root: Sequence[Path] | Path,
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None,
    store: Store,
    network: bool = False,
    binds: Sequence[tuple[str, str] | tuple[str, str, bool]] = (),
    capture: bool = False,
    timeout: float | None = None,
    reporter: Reporter | None = None,
    observe: Callable[[Mapping[str, bool]], None] | None = None,
) -> tuple[int, bytes]:
    """Run a command in layer trees (bottom first) or in a squashfs file; what it writes is discarded.

    `env` is the command's whole environment, but for a PATH, HOME and TERM when it has none. `binds`: (source, target)
    or (source, target, read-only). `capture`: return stdout and stderr together, after `timeout` seconds at most, with
    exit code 124; else they are copied to this process's own, as is its input to the command. A command with more than
    LARGEST bytes of captured output is ended: 125, and the last ones. `observe`: called with the fields of
    `sandbox.Protection` that were in force.
    Returns (exit code, output); 128 + signal for a killed command. Raises
    EngineError, VerifyError for a damaged squashfs file, SpecError for a bind that cannot be made."""
    whole = {
        "PATH": SYSTEM_PATH,
        "HOME": "/root",
        "TERM": "dumb" if capture else os.environ.get("TERM", "dumb"),
        **(env or {}),
    }
    image = root if isinstance(root, Path) else None
    if image:
        check_image(image, padded=False)  # before a mount program reports another error for a damaged file
    trees = [] if isinstance(root, Path) else [str(path.resolve()) for path in root]
    with store.workdir() as work, contextlib.ExitStack() as stack:
        job = make_job(work / "run", trees, argv, whole, interactive=not capture)
        job |= {
            "network": network,
            "image": str(image.resolve()) if image else "",
            "binds": [[*item, False][:3] for item in binds],
        }
        streams = None if capture else stack.enter_context(Streams())
        child = start_job(job, streams)
        try:
            if streams:
                streams.relay(child.process)
            output = read_output(child, timeout)
            if len(output) > LARGEST:
                child.kill()
                remove_folders(work)
                return TOO_MUCH, output[-LAST:] + f"\nended: more than {LARGEST >> 20} MiB of output".encode()
        except subprocess.TimeoutExpired as expired:
            child.kill()
            late = child.process.stdout.read() if child.process.stdout else b""
            remove_folders(work)
            return TIMED_OUT, (expired.output or b"") + late
        except BaseException:
            child.kill()
            remove_folders(work)
            raise
        with store.filled():
            answer = read_result(child)
    for note in answer["notes"]:
        if reporter:
            reporter.info(note)
    if observe:
        observe(answer["protection"])
    return answer["code"], output


def read_output(child: Child, timeout: float | None) -> bytes:
    """Return the captured output, if any, when the command has ended, or as soon as it has more than LARGEST bytes.

    Raises TimeoutExpired, with the output so far.
    """
    process, output = child.process, bytearray()
    if process.stdout is None:
        return b""
    end = None if timeout is None else time.monotonic() + timeout
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    while len(output) <= LARGEST:
        if not poll.poll(None if end is None else max(0.0, end - time.monotonic()) * 1000):
            raise subprocess.TimeoutExpired(process.args, timeout or 0.0, bytes(output))
        if not (data := os.read(process.stdout.fileno(), 1 << 16)):
            break
        output += data
    return bytes(output)


def make_job(
    work: Path, lowers: Sequence[str], argv: Sequence[str], env: Mapping[str, str], *, interactive: bool
) -> dict[str, Any]:
    return {
        "work": str(work.resolve()),
        "lowers": list(lowers),
        "argv": list(argv),
        "env": dict(env),
        "interactive": interactive,
        "input_names": [],
        "apt": False,
        "network": False,
        "image": "",
        "binds": [],
    }


def start_job(job: dict[str, Any], streams: Streams | None) -> Child:
    """Start it with `streams`; None: without input, its output is captured."""
    return spawn(
        unit_process.run_job,
        {"job": job},
        what=unit_process.PROCESS,
        streams=streams.child if streams else None,
        one_id=bool(job["image"]),  # trees of layers belong to subordinate ids; files of an image need none
    )


def read_result(child: Child) -> dict[str, Any]:
    """Return the answer of `unit_process.run_job`. Raises EngineError, and SpecError for a bind that cannot be made."""
    try:
        answer: dict[str, Any] = child.result()
    except SetupError as error:
        raise setup_error(error) from None
    return answer


def open_failed_shell(job: dict[str, Any], work: Path) -> None:
    """Open an interactive shell in the root of a failed unit (its `job`): its upper directory becomes a lower one, so
    the evidence is preserved."""
    lowers = [*job["lowers"], f"{job['work']}/upper"]
    env = {**job["env"], "TERM": os.environ.get("TERM", "dumb")}
    shell = make_job(work, lowers, ["/bin/sh", "-c", SHELL], env, interactive=True)
    shell |= {
        "evidence": job["work"],
        "input_names": [item["name"] for item in job["inputs"]],
        "apt": any(item["name"] == "debs" and item["kind"] == "debian" for item in job["inputs"]),
    }
    with Streams() as streams:
        child = start_job(shell, streams)
        try:
            streams.relay(child.process)
        except BaseException:
            child.kill()
            raise
        read_result(child)


def remove_folders(work: Path) -> None:
    remove_trees(path for path in work.iterdir() if path.is_dir())
