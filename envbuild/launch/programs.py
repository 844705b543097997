"""The kind of a command: what starts its ranks, and what it uses to communicate."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from envbuild.launch.model import LaunchImage

NCCL_TESTS = (
    r"(all_gather|all_reduce|alltoall|alltoallv|broadcast|gather|hypercube|reduce|reduce_scatter|scatter|sendrecv)_perf"
)
UCC = ("ucc_perftest", "ucc_test_mpi")
MPI = r"osu_[a-z0-9_]+|IMB-[A-Za-z0-9]+|ucc_test_mpi|ucc_perftest"
MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")  # python -m
LAUNCHERS = ("torchrun", "mpirun", "mpiexec", "deepspeed", "accelerate", "deepy.py", *MODULES)
PYTHON = r"python(3(\.[0-9]+)?)?"
MPI_LAYERS = ("openmpi", "hpcx")
# Programs that start another one: letters of their options whose value may be a word of its own (manual pages of
# coreutils, numactl, util-linux and time; Nsight Systems' user guide), and how many words precede the command.
WRAPPERS = {
    "env": ("uC", 0),
    "numactl": ("imNCp", 0),
    "taskset": ("", 1),
    "nsys": ("bcdefnopstwxy", 1),
    "time": ("fo", 0),
    "neuron_parallel_compile": ("", 0),
}


def program_of(command: Sequence[str]) -> str:
    """Return the name of the program that a command starts, without the words before it: ``env A=1 nsys profile``."""
    words = program_words(command)
    return PurePosixPath(words[0]).name if words else ""


def program_words(command: Sequence[str]) -> list[str]:
    """Return the program that a command starts and its words, without those before it."""
    words = list(command)
    while len(words) > 1 and (name := PurePosixPath(words[0]).name) in WRAPPERS:
        letters, own = WRAPPERS[name]
        del words[0]
        while len(words) > 1:
            if words[0].startswith("-"):
                apart = len(words[0]) == 2 and words[0][1] in letters
                del words[: min(1 + apart, len(words) - 1)]
            elif re.fullmatch(r"[A-Za-z_]\w*=.*", words[0]):
                del words[0]
            elif own:
                own -= 1
                del words[0]
            else:
                break
    return words


def is_nccl_test(command: Sequence[str]) -> bool:
    """Return whether a command is a program of nccl-tests."""
    return re.fullmatch(NCCL_TESTS, program_of(command)) is not None


def is_ucc_program(command: Sequence[str], image: LaunchImage) -> bool:
    """Return whether tensors or buffers of a command go through UCC: its UCX needs the devices of the fabric."""
    return program_of(command) in UCC or (image.has("torch-ucc") and not is_nccl_test(command))


def starts_ranks(command: Sequence[str]) -> bool:
    """Return whether a command starts the ranks of a node itself."""
    return bool(find_launcher(command)[0])


def find_launcher(command: Sequence[str]) -> tuple[str, list[str]]:
    """Return the program with which a command starts the ranks of a node, and the words after it; without one the name
    is empty: ``torchrun``, ``python -u -m torch.distributed.run``, ``python ./deepy.py``, ``accelerate launch``."""
    words = program_words(command)
    if words and re.fullmatch(PYTHON, PurePosixPath(words[0]).name):
        words = python_words(words[1:])
    name = PurePosixPath(words[0]).name if words else ""
    if name not in LAUNCHERS or (name == "accelerate" and words[1:2] != ["launch"]):
        return "", []
    return name, words[2:] if name == "accelerate" else words[1:]


def python_words(words: Sequence[str]) -> list[str]:
    """Return the module or the file that Python starts and its words, without the options of Python."""
    left = list(words)
    while left and left[0].startswith("-"):
        option = left.pop(0)
        if re.fullmatch("-[A-Za-z]*m", option):
            return left if left[:1] and left[0] in MODULES else []
        del left[: option in ("-W", "-X")]
    return left


def has_mpi(image: LaunchImage) -> bool:
    """Return whether an image contains MPI. One that envbuild did not build has variables of its MPI."""
    foreign = ("OMPI_VERSION", "OPENMPI_VERSION", "OPAL_PREFIX", "HPCX_VERSION", "HPCX_MPI_DIR")
    return image.has(*MPI_LAYERS) or any(name in image.env for name in foreign)


def usual_plugin(plugins: Sequence[str]) -> str:
    """Return the one of Slurm's PMIx plugins that starts MPI: the default one, else the newest."""
    return "pmix" if "pmix" in plugins else plugins[-1]


def has_torch(image: LaunchImage) -> bool:
    """Return whether an image contains PyTorch."""
    return image.has("torch", "neuron", "torch-neuronx") or "PYTORCH_VERSION" in image.env


def is_mpi_command(command: Sequence[str], image: LaunchImage) -> bool:
    """Return whether a command starts MPI: a benchmark that does, or Python in an image for mpi4py without torch."""
    if not has_mpi(image) or starts_ranks(command):
        return False
    name = program_of(command)
    if is_nccl_test(command) or re.fullmatch(MPI, name):
        return True
    return image.has("mpi4py") and not image.has("torch") and is_python(name)


def may_be_mpi(command: Sequence[str], image: LaunchImage) -> bool:
    """Return whether a command may start MPI, for all that is known: a program of its own in an image for MPI."""
    path = (program_words(command) or [""])[0]
    plain = has_mpi(image) and not has_torch(image) and not starts_ranks(command)
    return plain and "/" in path and not is_python(program_of(command))


def is_python(name: str) -> bool:
    return re.fullmatch(PYTHON, name) is not None or name.endswith(".py")
