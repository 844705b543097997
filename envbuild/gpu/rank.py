"""One rank of a job on several nodes: it runs the program of the rank, reads its logs, and returns both.

perftest needs a server and a client: the rank of the first node is the server, that of the second the client.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..doctor.processes import Output
from .allowed import allowed_variables, allowed_words
from .bench import Bench, read_lanes, read_logs

RANK_NAMES = ("SLURM_PROCID", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "RANK")
NODE_NAMES = ("SLURM_NODEID", "OMPI_COMM_WORLD_NODE_RANK", "GROUP_RANK")
LAST = 200_000  # characters of an output
SERVER_START = 5.0  # seconds that the client waits for the server


def variable(environ: Mapping[str, str], names: Sequence[str]) -> int:
    """Return the number that the first of these variables has; 0 without them."""
    return next((int(environ[name]) for name in names if re.fullmatch(r"\d{1,9}", environ.get(name, ""))), 0)


def run_rank(bench: Bench, words: Sequence[str], limit: float, role: str = "") -> tuple[int, dict[str, Any]]:
    """Run the program of this rank. Return the number of the rank, and its document.

    role: ``pair``: of perftest; the client gets the address of the first node.
    """
    rank = variable(bench.environ, RANK_NAMES)
    env, folder = bench.logged()
    command = list(words)
    if role == "pair" and rank:
        command.append(bench.environ.get("MASTER_ADDR", "127.0.0.1"))
        time.sleep(SERVER_START)
    output = run_program(bench, command, env, limit)
    return rank, {
        "rank": rank,
        "node": variable(bench.environ, NODE_NAMES),
        "words": allowed_words(words),
        "code": output.code,
        "fault": output.fault,
        "seconds": round(output.seconds, 1),
        "text": output.text[-LAST:],
        "errors": output.errors[-LAST:],
        "logs": [asdict(log) for log in read_logs(folder)],
        "lanes": list(read_lanes(folder)),
        "environment": allowed_variables({**bench.environ, **env}),
        "devices": asdict(bench.devices),
    }


def run_program(bench: Bench, words: Sequence[str], env: Mapping[str, str], limit: float) -> Output:
    """Run a program, or with ``own`` as first word a part of this one."""
    if words[0] == "own":
        return bench.run_own(*words[1:], env=env, limit=limit)
    return bench.run(words, env, limit)
