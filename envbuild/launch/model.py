"""The parts of a launch: the request, the image, and the plan that every output form is written from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from envbuild.spec.target import Target

OWNERS = ("image", "launch", "target", "site", "command line")  # each overrides those before it
# Variables by which srun, a program of the host, would be found and loaded: pyxis' containers alone get them.
INSIDE = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD")
# What PyTorch's ranks need to find each other: nothing, an address, or with the number of ranks.
RENDEZVOUS = {"": (), "address": ("MASTER_ADDR", "MASTER_PORT"), "ranks": ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE")}


class Setting(NamedTuple):
    """A variable of a job: its value, who owns it (one of `OWNERS`) and why it is set. `replaces`: the owners and the
    values that it overrides."""

    name: str
    value: str
    owner: str
    because: str
    replaces: tuple[tuple[str, str], ...] = ()


class Option(NamedTuple):
    """An option of sbatch, srun or docker run (``--name=value``), who owns it and why."""

    text: str
    owner: str
    because: str

    @property
    def name(self) -> str:
        return self.text.partition("=")[0]


class Kind(NamedTuple):
    """The kind of an output form: whether it is a job of Slurm, starts its container with pyxis or with docker run,
    starts one task on a node, names the nodes, starts a container for each rank, and starts no file, but an image of a
    registry."""

    slurm: bool = False
    pyxis: bool = False
    docker: bool = False
    one_task: bool = False
    hosts: bool = False
    apart: bool = False
    by_reference: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """The request of the command line.

    nodes, tasks_per_node, gpus, cpus_per_task: 0: from the target. time, partition, name: of the Slurm job; empty: the
    default. env: variables → value. because: the reason why they replace other values. mounts: SRC[:DST[:ro]].
    hosts: names, where no scheduler knows them. mpi: whether the command starts with MPI; None: found out. root:
    whether the job's user is root in the container. compile: run the compile step of the target first.
    """

    command: tuple[str, ...]
    nodes: int = 1
    tasks_per_node: int = 0
    gpus: int = 0
    cpus_per_task: int = 0
    time: str = ""
    partition: str = ""
    name: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    because: str = ""
    mounts: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    mpi: bool | None = None
    root: bool = False
    compile: bool = False
    target: str = ""


@dataclass(frozen=True, slots=True)
class LaunchImage:
    """An image as a launch needs it.

    name: of the project, or of the file or reference. typed: the name of an image of the project as the user typed it,
    perhaps the path of its spec.
    squashfs: the path that nodes read; empty: `lacks_path` is why.
    reference: of a registry (``docker://…``); empty: `lacks_reference` is why.
    docker: its name in the Docker Engine of a node.
    packs_alone: whether it was published without its OCI image, which container engines read.
    env: of the finished image; of a project's image that is not built, what its spec declares (`built` is false).
    before: the commands after which it can be started, of an image that is not built.
    configuration, sha256, diff_ids: digests (``sha256:…``) of the configuration, of the squashfs file and of the layers
    (bottom first) of a project's image, if it is built.
    other, moved: why nodes would start another image as its file, and under its reference, and the command that changes
    this; empty: not known.
    versions: component → version. layers: its recipes. ssh_server: whether it has one; None: not known.
    """

    name: str
    target: str
    arch: str
    env: Mapping[str, str]
    versions: Mapping[str, str]
    layers: tuple[str, ...]
    typed: str = ""
    squashfs: str = ""
    lacks_path: tuple[str, str] = ("", "")
    reference: str = ""
    lacks_reference: tuple[str, str] = ("", "")
    docker: str = ""
    packs_alone: bool = False
    built: bool = True
    before: str = ""
    configuration: str = ""
    sha256: str = ""
    diff_ids: tuple[str, ...] = ()
    other: tuple[str, str] = ("", "")
    moved: tuple[str, str] = ("", "")
    warnings: tuple[str, ...] = ()
    ssh_server: bool | None = None

    def has(self, *components: str) -> bool:
        """Return whether the image contains one of these layers or components."""
        return any(name in self.layers or name in self.versions for name in components)


@dataclass(frozen=True, slots=True)
class Plan:
    """A launch, from which each output form is written.

    env: exported by the job, sorted. beats_image: those of them that the finished image defines, too.
    container_env: whether pyxis has the option that makes them win, or the form needs none.
    rendezvous: ``ranks`` (MASTER_ADDR, MASTER_PORT and WORLD_SIZE are needed), ``address`` (the first two), or empty,
    also for a form whose program sets them.
    pmix: the value of ``srun --mpi``. pyxis: whether it starts the container. job, step, container, docker: options.
    rdma: the resource of Kubernetes for the fabric that the site names.
    expect: lines with the figures that a healthy node reaches with this command.
    """

    image: LaunchImage
    target: Target
    request: Request
    command: tuple[str, ...]
    tasks_per_node: int
    gpus: int
    workers: int
    env: tuple[Setting, ...]
    beats_image: tuple[str, ...]
    container_env: bool
    rendezvous: str
    mpi: bool
    pmix: str
    pyxis: bool
    job: tuple[Option, ...]
    step: tuple[Option, ...]
    container: tuple[Option, ...]
    docker: tuple[Option, ...]
    mounts: tuple[str, ...]
    name: str
    rdma: str = ""
    expect: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def nodes(self) -> int:
        return self.request.nodes

    @property
    def ranks(self) -> int:
        return self.nodes * self.tasks_per_node


@dataclass(frozen=True, slots=True)
class Written:
    """An output form. `submit`: the program that gets `text` on its standard input; empty: `text` is a script for
    ``sh``. `manual`: why envbuild cannot start it itself."""

    text: str
    submit: tuple[str, ...] = ()
    manual: str = ""
