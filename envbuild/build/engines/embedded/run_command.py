"""Commands inside an image or a failed unit, on a throw-away upper directory, with the caller's streams: `envbuild
run`, --shell-on-fail."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envbuild.build.engines.embedded import unit_process
from envbuild.build.engines.embedded.session import Bind
from envbuild.build.engines.error_report import setup_error
from envbuild.build.plan.units import SYSTEM_PATH
from envbuild.core.console import Reporter
from envbuild.core.store.store import Store
from envbuild.core.userns.namespaces import SetupError
from envbuild.core.userns.process import Child, spawn
from envbuild.core.userns.removal import remove_trees
from envbuild.core.userns.streams import Streams
from envbuild.squashfs.read.superblock import check_image

SHELL = "if [ -x /bin/bash ]; then exec /bin/bash -i; else exec /bin/sh -i; fi"


def run_in_root(
    root: Sequence[Path] | Path,
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None,
    store: Store,
    network: bool = False,
    binds: Sequence[Bind] = (),
    reporter: Reporter | None = None,
) -> int:
    """Run a command in layer trees (bottom first) or in a squashfs file, with the streams of this process; what it
    writes is discarded. A command whose output is captured is one of a session (`session.open_session`).

    `env` is the command's whole environment, but for a PATH, HOME and TERM when it has none. `binds`: (source, target)
    or (source, target, read-only).

    Returns the exit code; 128 + signal for a killed command. Raises EngineError, VerifyError for a damaged squashfs
    file, SpecError for a bind that cannot be made."""
    whole = {"PATH": SYSTEM_PATH, "HOME": "/root", "TERM": os.environ.get("TERM", "dumb"), **(env or {})}
    image = root if isinstance(root, Path) else None
    if image:
        check_image(image, padded=False)  # before a mount program reports another error for a damaged file
    trees = [] if isinstance(root, Path) else [str(path.resolve()) for path in root]
    with store.workdir() as work, Streams() as streams:
        job = make_job(work / "run", trees, argv, whole)
        job |= {
            "network": network,
            "image": str(image.resolve()) if image else "",
            "binds": [[*item, False][:3] for item in binds],
        }
        child = start_job(job, streams)
        try:
            streams.relay(child.process)
        except BaseException:
            child.kill()
            remove_trees(path for path in work.iterdir() if path.is_dir())
            raise
        with store.filled():
            answer = read_result(child)
    for note in answer["notes"]:
        if reporter:
            reporter.info(note)
    code: int = answer["code"]
    return code


def make_job(work: Path, lowers: Sequence[str], argv: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
    return {
        "work": str(work.resolve()),
        "lowers": list(lowers),
        "argv": list(argv),
        "env": dict(env),
        "input_names": [],
        "apt": False,
        "network": False,
        "image": "",
        "binds": [],
    }


def start_job(job: dict[str, Any], streams: Streams) -> Child:
    return spawn(
        unit_process.run_job,
        {"job": job},
        what=unit_process.PROCESS,
        streams=streams.child,
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
    shell = make_job(work, lowers, ["/bin/sh", "-c", SHELL], env)
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
