"""The kind of a command: MPI only where image, site and command have it; who starts the ranks."""

from __future__ import annotations

import pytest

from envbuild.core.errors import SpecError
from envbuild.launch.programs import is_mpi_command, program_of, starts_ranks
from tests.support.launching import make_plan, option_values, torch_image

pytestmark = pytest.mark.unit

MPI4PY = torch_image(layers=("openmpi", "mpi4py"), versions={}, env={}, target="cpu")
NGC = torch_image(layers=(), versions={}, env={"OPENMPI_VERSION": "4.1.7", "NCCL_VERSION": "2.28"})


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/opt/nccl-tests/build/all_reduce_perf -b 8", "all_reduce_perf"),
        ("env A=1 B=2 nsys profile -o x python train.py", "python"),
        ("nsys profile -t cuda,nvtx --force-overwrite=true all_reduce_perf -b 8", "all_reduce_perf"),
        ("taskset -c 0-3 osu_bw", "osu_bw"),
        ("numactl -m 0 -N0 osu_bw", "osu_bw"),
        ("env -u A time -f %e osu_bw", "osu_bw"),
        ("nsys", "nsys"),
        ("nsys profile", "profile"),
        ("numactl -m0 -N0 osu_bw", "osu_bw"),
        ("env", "env"),
    ],
)
def test_the_program_of_a_command(command: str, name: str) -> None:
    assert program_of(command.split()) == name


@pytest.mark.parametrize(
    ("command", "mpi"),
    [
        ("all_reduce_perf -b 8", True),
        ("sendrecv_perf", True),
        ("osu_bw D D", True),
        ("python train.py", False),
        ("torchrun train.py", False),
        ("mpirun -n 2 all_reduce_perf", False),
        ("nvidia-smi", False),
        ("my_perf", False),
    ],
)
def test_which_commands_start_with_mpi(command: str, mpi: bool) -> None:
    assert is_mpi_command(command.split(), torch_image()) is mpi
    assert is_mpi_command(command.split(), NGC) is mpi
    assert not is_mpi_command(command.split(), torch_image(layers=("torch",)))


def test_python_starts_with_mpi_in_an_image_for_mpi4py() -> None:
    assert is_mpi_command(["python3", "t.py"], MPI4PY)
    assert not is_mpi_command(["hostname"], MPI4PY)


def test_mpi_can_be_stated() -> None:
    assert "--mpi" not in option_values(make_plan(("./solver",)))
    assert option_values(make_plan(("./solver",), mpi=True))["--mpi"] == "pmix"
    assert "--mpi" not in option_values(make_plan(("all_reduce_perf",), mpi=False))
    with pytest.raises(SpecError, match="contains no MPI"):
        make_plan(("./solver",), mpi=True, image=torch_image(layers=("torch",)))


@pytest.mark.parametrize(
    ("command", "itself"),
    [
        ("torchrun --nproc-per-node 8 train.py", True),
        ("python -m torch.distributed.run train.py", True),
        ("python ./deepy.py train.py", True),
        ("accelerate launch train.py", True),
        ("python -m torch.distributed.launch train.py", True),
        ("python3 -u -m torch.distributed.run train.py", True),
        ("env A=1 B=2 torchrun train.py", True),
        ("env A=1 B=2 python -u -m torch.distributed.run train.py", True),
        ("nsys profile -o x torchrun train.py", True),
        ("nsys profile python train.py", False),
        ("python train.py -m torch.distributed.run", False),
        ("python train.py torchrun", False),
        ("python -W ignore -um torch.distributed.run train.py", True),
        ("python -m package torchrun", False),
        ("python /opt/venv/bin/torchrun train.py", True),
        ("accelerate env", False),
        ("python train.py --launcher torchrun", False),
        ("bash", False),
    ],
)
def test_which_commands_start_the_ranks_themselves(command: str, itself: bool) -> None:
    assert starts_ranks(command.split()) is itself
