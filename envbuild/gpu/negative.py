"""The negative check: with a network that does not exist, NCCL must end with an error, and soon.

It proves that a launch that forces NCCL_NET cannot fall back to TCP in silence. NCCL opens its network when a
communicator is made, of any size (NVIDIA/nccl, src/init.cc).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..doctor.processes import Output
from .tools.nccl_log import NcclLog, parse_nccl_log

MISSING = "envbuild-no-such-network"
VARIABLES = {"NCCL_NET": MISSING}
LIMIT = 60.0  # seconds


def negative_fault(outputs: Sequence[Output], logs: Sequence[NcclLog], limit: float = LIMIT) -> str:
    """Return why the programs of all ranks did not fail as they must, or "".

    A program that fails for another reason proves nothing: one rank must name the missing network.
    """
    if not outputs:
        return "incomplete: no rank reported its end"
    if any("did not end within" in output.fault for output in outputs):
        return f"a rank did not end within {limit:.0f} s: a job with a wrong NCCL_NET hangs"
    if any(not output.code for output in outputs):
        return "a rank ended without an error: NCCL fell back to another network in silence"
    texts = [parse_nccl_log(output.text + "\n" + output.errors) for output in outputs]
    if not any(log.no_network for log in (*logs, *texts)):
        last = next((output.failure("the program") for output in outputs), "")
        return f"it failed for another reason than the missing network: {last[:300]}"
    return ""
