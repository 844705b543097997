"""The place where the doctor runs: login node, compute node, the container of a job, another container, or a machine
without Slurm. A container is recognised by its namespaces: the first ones of a kernel have fixed numbers
(include/linux/proc_ns.h). Files such as /.dockerenv count where these cannot be read: a virtual machine made from an
image has them, too."""

from __future__ import annotations

import os
import re

from ..host import Host

LOGIN, COMPUTE, JOB, CONTAINER, OTHER = (
    "login node", "compute node", "container of a job", "container", "machine without Slurm",
)  # fmt: skip
FIRST = {
    "user": "user:[4026531837]", "pid": "pid:[4026531836]", "ipc": "ipc:[4026531839]", "cgroup": "cgroup:[4026531835]",
}  # fmt: skip
MARKS = ("/.dockerenv", "/run/.containerenv")
NODE_SCRIPTS = ("prolog_slurmd", "epilog_slurmd")
CLIENTS = ("srun", "scontrol")
STARTED_BY = (
    "/etc/systemd/system/multi-user.target.wants/slurmd.service",
    "/run/systemd/generator.late/slurmd.service",
)
DROP_INS = "/etc/systemd/system/slurmd.service.d"
RUNNING, STOPPED, ZOMBIE, HIDDEN = (
    "slurmd runs here", "slurmd is to start here, and does not run", "slurmd has ended, and remains as a zombie",
    "slurmd is to start here, and /proc shows no process of root to this user",
)  # fmt: skip
OWN_NAME = re.compile(r"\0-N\0?([^\0]+)")  # the option of slurmd for a name that is not the host's
ROOT = re.compile(r"^Uid:\s+0\s+0\s", re.MULTILINE)  # real and effective (proc_pid_status(5))
OTHER_GROUP = re.compile(r"^Gid:\s+(?!0\s+0\s+0\s)", re.MULTILINE)  # a setuid program keeps the group of its user
ENDED = re.compile(r"^State:\s+[ZX]", re.MULTILINE)  # a zombie, or dead


def find_place(host: Host) -> tuple[str, str]:
    """Return the place, and what shows it."""
    return host.once(read_place)


def read_place(host: Host) -> tuple[str, str]:
    """Read the namespaces and the processes of the machine."""
    sign, job = container_sign(host), job_id(host)
    if sign and job:
        return JOB, f"{sign}; job {job}"
    if sign:  # slurmd may run in a pod: its processes are those of this container
        own = not has_first(host, "pid") and pid_of(host, "slurmd")
        return (COMPUTE, f"{RUNNING}, in a container") if own else (CONTAINER, sign)
    if pid_of(host, "slurmd"):
        return COMPUTE, RUNNING
    if job:
        return COMPUTE, f"job {job} runs here"
    if pids_of(host, "slurmd", ended=True):
        return COMPUTE, ZOMBIE
    # a login node may have the program of slurmd, from a folder that all nodes share
    unit = next((path for path in STARTED_BY if host.has(path)), "")
    lacking = missing_condition(host, unit) if unit else ""
    if unit and not lacking:
        return COMPUTE, HIDDEN if hides_processes(host) else STOPPED
    client = next((name for name in CLIENTS if host.programs.find(name)), "")
    if lacking:  # packages enable slurmd on every machine that has them
        return (LOGIN if client else OTHER), f"slurmd is enabled here, and cannot start: {lacking} is missing"
    return (LOGIN, f"{client} is installed, and slurmd does not run here") if client else (OTHER, "no program of Slurm")


def job_id(host: Host) -> str:
    """Return the job that this process is part of, or "". slurmd's Prolog and Epilog have a job's variables, and run
    outside of it, with the rights and the devices of the node (SLURM_SCRIPT_CONTEXT of Slurm's Prolog and Epilog
    Guide)."""
    of_node = host.environ.get("SLURM_SCRIPT_CONTEXT", "") in NODE_SCRIPTS
    return "" if of_node else host.environ.get("SLURM_JOB_ID", "")


def missing_condition(host: Host, unit: str) -> str:
    """Return the file without which systemd does not start a unit (systemd.unit(5), ConditionPathExists), or ""."""
    texts = [host.text(unit), *(host.text(f"{DROP_INS}/{name}") for name in host.names(DROP_INS))]
    paths: list[str] = []
    for path in re.findall(r"^ConditionPathExists=[ \t]*(\S*)", "\n".join(texts), re.MULTILINE):
        paths = [*paths, path] if path else []  # an empty one takes back those before it
    return next((path for path in paths if path.startswith("/") and not host.has(path)), "")


def container_sign(host: Host) -> str:
    """Return what shows that this is a container, or ""."""
    names = {kind: host.link_name(f"/proc/self/ns/{kind}") for kind in FIRST}
    for kind, name in names.items():
        if name and name != FIRST[kind]:
            return f"its {kind} namespace is not the first one"
    if any(names.values()):
        return ""
    return next((f"{path} exists" for path in MARKS if host.has(path)), "")


def hides_processes(host: Host) -> bool:
    """Return whether processes of root may run unseen: in a container with a pid namespace of its own, or where /proc
    shows a user's own processes alone (mount option hidepid of proc(5))."""
    return not has_first(host, "pid") or (host.has("/proc/self") and not host.text("/proc/1/comm"))


def has_first(host: Host, kind: str) -> bool:
    """Return whether a namespace is the kernel's first one, or cannot be read."""
    return host.link_name(f"/proc/self/ns/{kind}") in ("", FIRST[kind])


def is_container(host: Host) -> bool:
    """Return whether this is a container of any kind."""
    return find_place(host)[0] in (JOB, CONTAINER)


def device_hint(host: Host, path: str) -> str:
    """Return the option that puts a device file into this kind of container."""
    return f"srun --container-mounts={path}" if find_place(host)[0] == JOB else f"docker run --device={path}"


def host_name(host: Host) -> str:
    """Return the name of the machine."""
    return os.uname().nodename if host.is_real else host.text("/proc/sys/kernel/hostname")


def slurm_name(host: Host) -> str:
    """Return Slurm's name of the machine, which may differ from its own; "" in a container that Slurm did not start:
    its name is not that of the node."""
    if name := host.environ.get("SLURMD_NODENAME", ""):
        return name
    if is_container(host):
        return ""
    named = [OWN_NAME.search(host.text(f"/proc/{pid}/cmdline")) for pid in pids_of(host, "slurmd")]
    own = {found[1] if found else "" for found in named}  # of several daemons: one that they agree on
    return (own.pop() if len(own) == 1 else "") or host_name(host).partition(".")[0]


def pid_of(host: Host, name: str) -> int:
    """Return the id of the first process of root with this name; 0: none."""
    return next(iter(pids_of(host, name)), 0)


def pids_of(host: Host, name: str, *, ended: bool = False) -> list[int]:
    """Return the ids of the processes of root with a name. `ended`: zombies.

    Any user can give a process a name, also a setuid program, which may have the user id of root for seconds: the
    group and, where it may be read, the name of the program must be root's and the same."""
    pids = [entry for entry in host.names("/proc") if entry.isdecimal()]
    named = [pid for pid in pids if host.text(f"/proc/{pid}/comm") == name]
    texts = {pid: host.text(f"/proc/{pid}/status") for pid in named}
    owned = [pid for pid, text in texts.items() if ROOT.search(text) and not OTHER_GROUP.search(text)]
    programs = {pid: host.link_name(f"/proc/{pid}/exe") for pid in owned}
    own = [pid for pid in owned if not programs[pid] or programs[pid].startswith(name)]
    return [int(pid) for pid in own if bool(ENDED.search(texts[pid])) == ended]
