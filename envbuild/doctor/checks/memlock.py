"""Memory may be locked without a limit: RDMA registers (locks) the memory that it sends from."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator

from ..facts.network import uses_rdma
from ..facts.place import COMPUTE, JOB, LOGIN, find_place, is_container, job_id, pid_of
from ..host import Host
from ..model import ADMINISTRATOR, MINOR, USER, Need, Result, failed, not_applicable, not_run, passed

GROUP = "limits"
ENOUGH = 16 << 30  # bytes; below it the health check of AWS for accelerated instances warns
PROPAGATED = "PropagateResourceLimitsExcept=MEMLOCK"


def check(host: Host, need: Need) -> Iterator[Result]:
    """Compare this process's limit, and the one that slurmd passes to jobs."""
    if not uses_rdma(host, need):
        yield not_applicable("jobs send through no RDMA device here")
        return
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] if host.is_real else daemon_limit(host, "self")
    slurmd = pid_of(host, "slurmd")
    if slurmd and daemon_limit(host, str(slurmd)) != resource.RLIM_INFINITY:
        fix = "systemctl edit slurmd, and write: [Service] LimitMEMLOCK=infinity; systemctl restart slurmd"
        limit = daemon_limit(host, str(slurmd))
        detail = f"slurmd passes a limit of {bytes_text(limit)} to jobs"
        yield failed(detail, ADMINISTRATOR if limit < ENOUGH else MINOR, fix)
    elif soft == resource.RLIM_INFINITY:
        yield passed("unlimited")
    elif slurmd and not job_id(host):
        yield passed(f"slurmd passes no limit to jobs; this session has {bytes_text(soft)}")
    elif slurmd:
        fix = "srun --propagate=NONE; or ulimit -l unlimited before sbatch; for all: slurm.conf: " + PROPAGATED
        yield failed(f"limit of {bytes_text(soft)}, of the shell that submitted the job", USER, fix)
    elif is_container(host) and find_place(host)[0] != JOB:
        yield failed(f"limit of {bytes_text(soft)}", USER, "docker run --ulimit memlock=-1")
    elif find_place(host)[0] in (JOB, COMPUTE) and job_id(host):
        fix = f"srun --propagate=NONE; for all: slurmd.service: LimitMEMLOCK=infinity; slurm.conf: {PROPAGATED}"
        yield failed(f"limit of {bytes_text(soft)}, of this job", USER, fix)
    elif find_place(host)[0] == COMPUTE:
        yield not_run(f"slurmd's limit, which jobs have, cannot be read; this session has {bytes_text(soft)}")
    elif find_place(host)[0] == LOGIN:
        detail = f"limit of {bytes_text(soft)}, which srun and sbatch pass to jobs"
        yield failed(detail, MINOR, f"srun --propagate=NONE; for all: slurm.conf: {PROPAGATED}")
    else:  # limits of a session (pam_limits)
        fix = "/etc/security/limits.d/memlock.conf, as root: the line  * - memlock unlimited  ; then log in again"
        yield failed(f"limit of {bytes_text(soft)}", ADMINISTRATOR, fix)


def daemon_limit(host: Host, pid: str) -> int:
    """Return the limit of a process, in bytes."""
    found = re.search(r"^Max locked memory\s+(\S+)", host.text(f"/proc/{pid}/limits"), re.MULTILINE)
    return int(found[1]) if found and found[1].isdigit() else resource.RLIM_INFINITY


def bytes_text(limit: int) -> str:
    """Return a limit as ulimit -l has it."""
    return f"{limit // 1024} KiB" if limit else "no bytes"
