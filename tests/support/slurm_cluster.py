"""A real Slurm of two nodes on this machine: munged, slurmctld and two slurmd with files of their own."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "sinfo")
CPUS, GPUS = 16, 2
CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={root}/state
SlurmctldPidFile={root}/slurmctld.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdPidFile={root}/%n.pid
SlurmdLogFile={root}/%n.log
SlurmdSpoolDir={root}/spool-%n
TmpFS={root}/tmp-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
PlugStackConfig={root}/plugstack.conf
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs={cpus} Gres=gpu:{gpus}
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs={cpus} Gres=gpu:{gpus}
PartitionName=debug Nodes=n1,n2 Default={default} MaxTime=10 State=UP OverSubscribe=YES
PartitionName=gpu Nodes=n1,n2 MaxTime=10 State=UP OverSubscribe=YES
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running Slurm; `env` is the environment of its clients."""

    root: Path
    env: Mapping[str, str]

    def run(self, *command: str, content: str = "", cwd: Path | None = None, check: bool = True) -> str:
        """Run a client; return what it prints."""
        done = subprocess.run(
            command,
            input=content,
            env=dict(self.env),
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert not check or done.returncode == 0, (
            f"{command}: {done.returncode}\n{done.stdout}{done.stderr}\n{self.logs()}"
        )
        return done.stdout + done.stderr

    def batch(self, script: str, folder: Path) -> tuple[str, str]:
        """Run a batch script to its end in a folder; return what the job printed, and its description."""
        number = self.run("sbatch", "--parsable", content=script, cwd=folder).strip()
        end = time.monotonic() + 90
        while time.monotonic() < end:
            described = self.run("scontrol", "show", "job", number)
            if any(f"JobState={state}" in described for state in ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED")):
                output = next(line.split("=", 1)[1] for line in described.splitlines() if "StdOut=" in line)
                return Path(output).read_text(), described
            time.sleep(0.2)
        raise AssertionError(f"job {number} does not end\n{described}\n{self.logs()}")

    def logs(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()[-3000:]}" for path in sorted(self.root.glob("*.log")))


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [item.getsockname()[1] for item in sockets]


def pyxis_plugin() -> Path | None:
    """Return the pyxis plugin of this machine, or the one that ENVBUILD_TEST_PYXIS names."""
    places = [
        os.environ.get("ENVBUILD_TEST_PYXIS", ""),
        "/usr/lib/slurm/spank_pyxis.so",
        "/usr/local/lib/slurm/spank_pyxis.so",
    ]
    return next((Path(place) for place in places if place and Path(place).is_file()), None)


@contextlib.contextmanager
def slurm_cluster(*, pyxis: Path | None = None, default: bool = True) -> Iterator[Cluster]:
    """Yield a cluster; its daemons and its files end with the context. Skips where Slurm is missing."""
    search = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [name for name in PROGRAMS if not shutil.which(name, path=search)]
    if missing:
        pytest.skip(f"{missing[0]} is not installed: apt-get install slurmd slurmctld slurm-client munge")
    if os.geteuid() != 0:
        pytest.skip("daemons of Slurm are started as root")
    with tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # munged and jobs of other users look into it
        with started(Path(folder), search, pyxis, default=default) as cluster:
            yield cluster


@contextlib.contextmanager
def started(root: Path, search: str, pyxis: Path | None, *, default: bool) -> Iterator[Cluster]:
    """Yield a cluster whose files are in `root`."""
    host = socket.gethostname()
    ports = free_ports(3)
    for name in ("state", "tmp-n1", "tmp-n2", "spool-n1", "spool-n2", "munge"):
        (root / name).mkdir(parents=True)
    for name in ("tmp-n1", "tmp-n2"):
        (root / name).chmod(0o1777)
    munge_user = next((name for name in ("munge",) if name in {item.pw_name for item in pwd.getpwall()}), "root")
    (root / "plugstack.conf").write_text(f"required {pyxis} runtime_path={root}/pyxis\n" if pyxis else "")
    (root / "slurm.conf").write_text(
        CONF.format(
            host=host,
            port=ports[0],
            first=ports[1],
            second=ports[2],
            root=root,
            cpus=CPUS,
            gpus=GPUS,
            default="YES" if default else "NO",
        )
    )
    (root / "gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")  # any files, one for each
    key = root / "munge" / "key"
    key.write_bytes(os.urandom(128))
    for path in (root / "munge", key):
        shutil.chown(path, munge_user, munge_user)
    key.chmod(0o600)
    env = {**os.environ, "PATH": search, "SLURM_CONF": str(root / "slurm.conf")}
    munge = [
        "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={root}/munge/socket",
        f"--pid-file={root}/munge/pid", f"--log-file={root}/munge/log", f"--seed-file={root}/munge/seed",
    ]  # fmt: skip
    with contextlib.ExitStack() as stack:
        start(stack, munge, env, user=munge_user)
        wait_for(lambda: (root / "munge" / "socket").exists(), "munged")
        start(stack, ["slurmctld", "-D"], env)
        for name in ("n1", "n2"):
            start(stack, ["slurmd", "-D", "-N", name], env)
        cluster = Cluster(root, env)
        wait_for(
            lambda: cluster.run("sinfo", "-h", "-p", "gpu", "-t", "idle", "-o", "%D", check=False).strip() == "2",
            lambda: f"{cluster.run('sinfo', check=False)}\n{cluster.logs()}",
        )
        yield cluster
        cluster.run("scancel", "--user=root", check=False)


def start(stack: contextlib.ExitStack, command: Sequence[str], env: Mapping[str, str], user: str = "root") -> None:
    """Start a daemon in the foreground; it ends with the context."""
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(
        command, env=dict(env), user=user, group=user, extra_groups=[], start_new_session=True, **quiet
    )

    def end() -> None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    stack.callback(end)


def wait_for(ready, what, seconds: float = 40) -> None:  # type: ignore[no-untyped-def]
    """Wait until `ready` returns true; fail with `what`."""
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, what() if callable(what) else f"{what} does not start"
        time.sleep(0.2)
