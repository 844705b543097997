"""Programs that start the ranks of one node: on several nodes each would run a job of its own, unless their words name
a rendezvous that fits all nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from envbuild.core.errors import Finding, SpecError
from envbuild.launch.model import Kind, Request
from envbuild.launch.programs import find_launcher
from envbuild.launch.quoting import shell_command

TORCHRUN = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
ACCELERATE = ("accelerate", "accelerate.commands.launch")
MPI = ("mpirun", "mpiexec")
STATIC = ("", "static")  # the default of --rdzv-backend: it needs another --node-rank on each node
ALONE = ("", "1", "1:1")


def check_launcher(request: Request, kind: Kind, env: Mapping[str, str]) -> None:
    """Raise SpecError for a command that starts the ranks of its node, where the form starts it on several nodes, or
    several times on one. `env`: the variables of the job."""
    name, words = find_launcher(request.command)
    if not name or kind.one_task or not (kind.slurm or kind.docker):
        return
    findings = []
    if request.tasks_per_node > 1:
        message = f"--tasks-per-node {request.tasks_per_node}: '{name}' starts the ranks of its node itself, and would "
        message += f"run {request.tasks_per_node} times on each"
        findings.append(Finding(message, hint="leave out --tasks-per-node"))
    if request.nodes > 1 and not names_rendezvous(name, words, env):
        message = f"'{name}' starts the ranks of one node, and the job has {request.nodes}: each node would run alone"
        findings.append(Finding(message, hint=other_form(name, words, kind)))
    if findings:
        raise SpecError.of(findings)


def names_rendezvous(name: str, words: Sequence[str], env: Mapping[str, str]) -> bool:
    """Return whether the words of a launcher, which are the same on each node, let the nodes find each other. torchrun
    reads its options from variables, too (torch/distributed/argparse_util.py)."""
    if name in TORCHRUN:
        nodes, backend, endpoint = (
            option_value(words, option) or env.get(f"PET_{option.upper()}", "")
            for option in ("nnodes", "rdzv_backend", "rdzv_endpoint")
        )
        return nodes not in ALONE and backend not in STATIC and bool(endpoint)
    if name in ACCELERATE:  # its file may name all (accelerate/commands/launch.py)
        nodes, backend, address, file = (
            option_value(words, option) for option in ("num_machines", "rdzv_backend", "main_process_ip", "config_file")
        )
        return bool(file) or (nodes not in ALONE and backend not in STATIC and bool(address))
    return False


def option_value(words: Sequence[str], option: str) -> str:
    """Return the value of an option of a launcher, ``--rdzv-backend c10d`` or ``--rdzv_backend=c10d``; empty without
    it."""
    for word, after in zip_longest(words, words[1:], fillvalue=""):
        if word.endswith(".py"):  # the rest is of the program
            return ""
        name, sign, value = word.partition("=")
        if name.removeprefix("--").replace("-", "_") == option and name.startswith("--"):
            return value if sign else after
    return ""


def other_form(name: str, words: Sequence[str], kind: Kind) -> str:
    """Return the hint: the form that starts the ranks of all nodes."""
    start = next((number for number, word in enumerate(words) if word.endswith(".py")), None)
    program = shell_command(words[start:]) if start is not None else "train.py"
    if name in MPI:
        own = "" if kind.docker else "name the program alone, whose ranks Slurm starts: -- PROGRAM; or "
        return f"{own}--as mpirun --hosts NAME,NAME -- PROGRAM"
    if kind.docker:
        return f"leave out {name}, which --as docker starts: -- {program}"
    if name in TORCHRUN or name in ACCELERATE:
        return f"--as torchrun -- {program}"
    launcher = "" if name == "deepspeed" else "python ./deepy.py "
    return (
        f"--as torchrun -- {program}; or DeepSpeed's launcher: --as deepspeed --hosts NAME,NAME -- {launcher}{program}"
    )


def few_workers(request: Request, workers: int, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return a warning for a torchrun that starts one rank on a node with several GPUs, which is its default."""
    name, words = find_launcher(request.command)
    stated = option_value(words, "nproc_per_node") or env.get("PET_NPROC_PER_NODE", "")
    if name not in TORCHRUN or stated or workers < 2:
        return ()
    return (f"{name} starts one rank on a node without --nproc_per_node: {name} --nproc_per_node={workers} …",)
