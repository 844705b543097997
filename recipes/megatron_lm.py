"""Megatron Core, NVIDIA's library to train large transformers."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from envbuild.sdk import (
    PYTHON,
    Check,
    Git,
    OptionError,
    Recipe,
    RecipeEnv,
    Refusal,
    Runtime,
    Sources,
    imports,
    python_wheel,
    unknown_words,
)

HELPERS = "megatron.core.datasets.helpers_cpp"
DATASETS = "megatron/core/datasets"
WRITER = "megatron.core.dist_checkpointing.strategies.filesystem_async"
NUMPY_1 = "numpy<2"  # its last release, 1.26.4, has wheels up to cp312 (PyPI)


class Release(NamedTuple):
    """A commit, the version in its package_info.py (that of the wheel), and the oldest Python and the numpy that its
    pyproject.toml requires."""

    commit: str
    version: str
    python: tuple[int, int] = (3, 10)
    numpy: str = "numpy"


# Tags core_v… of upstream. At the tag of 0.19.0 the version is 0.19.1.
RELEASES = {
    "0.19.0": Release("5be9626709af2722333bf54797c954c09edeada3", "0.19.1", (3, 12)),
    "0.18.2": Release("571370c829ca768fe37244f4e2e7f28d8accc4ab", "0.18.2", (3, 12)),
    "0.17.1": Release("266f1c97dca477ca8b92c16087506da2000b0b84", "0.17.1", (3, 12)),
    "0.16.1": Release("55ac7082517c3878ae653c07c09c534b8aed49f6", "0.16.1"),
    "0.15.3": Release("309ffca6a40553362d44fd17efc56b772fa1aa44", "0.15.3", numpy=NUMPY_1),
    "0.14.0": Release("23e00ed0963c35382dfe8a5a94fb3cda4d21e133", "0.14.0", numpy=NUMPY_1),
    "0.12.3": Release("3ea68ad6042cc1204386ae9364358f7c4de1bc37", "0.12.3"),
    "0.10.0": Release("7ee599a25ca15f042c1087176b73ebddb0566d02", "0.10.0"),  # with NxD Training of AWS Neuron
}


@dataclass(frozen=True, kw_only=True)
class MegatronLm(Recipe):
    """Megatron Core as the wheel megatron-core, from upstream's tag, with its C++ part compiled.

    - `version`: a release.
    - `origin`, `commit`, `gives`: another revision, and the name and version of its wheel (``megatron-core==0.13.1``).

    The C++ part mixes and cuts data sets. For setup.py it is optional: without a compiler or pybind11 the wheel is
    built without it. From 0.17.1 on the wheel also contains megatron.training. The programs (pretrain_gpt.py …) are in
    no wheel: use a checkout of the same tag in the job.

    Every job of megatron.training runs make in the folder of megatron.core.datasets and ends if that fails. Upstream's
    wheel has no makefile there; this one has a makefile with nothing to do. A checkout has upstream's, which compiles
    the C++ part into the checkout: the image has make and pybind11 for it, and the compiler of layer torch.

    Checkpoints of the default format are written with psutil, which no release declares; NVIDIA's images contain it.
    At 0.18.2 asynchronous ones are written with nvidia-resiliency-ext by default, without it by ``--async-strategy
    mcore``.

    OPT's older instructions install a fork (ngoyal2707/Megatron-LM, branch fairseq_v3). No commit of it is known here:
    its public copy ends in 2019 and does not have that branch.
    """

    wheel: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = ("torch",)
    cpu_minutes: ClassVar[float] = 0.3

    version: str = "0.16.1"
    origin: str = "github:NVIDIA/Megatron-LM"
    commit: str = ""
    gives: str = ""

    def __post_init__(self) -> None:
        if bool(self.commit) != bool(self.gives):
            raise OptionError(
                "'commit' and 'gives' require each other", "write both: 'gives' is the wheel as NAME==VERSION"
            )

    def faults(self) -> dict[str, Refusal]:
        if self.commit:
            return {}
        other = "for another revision write commit: and gives:"
        return unknown_words((self.version,), RELEASES, "is not a known release", other=other)

    @property
    def release(self) -> Release:
        if self.commit:
            return Release(self.commit, self.gives.partition("==")[2], (3, 8))
        return RELEASES[self.version]

    @property
    def git(self) -> Git:
        return Git("megatron-lm", self.origin, self.release.commit, "" if self.commit else f"core_v{self.version}")

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        oldest, found = self.release.python, tuple(int(number) for number in env.python.split("."))
        if found < oldest:
            needs = ".".join(map(str, oldest))
            why = f"{self.version} requires Python {needs} or later, and the base has {env.python}"
            return (Refusal(why, "take 0.16.1"),)
        if self.release.numpy == NUMPY_1 and found > (3, 12):
            why = f"{self.version} requires NumPy 1, which has no wheels for Python {env.python}"
            return (Refusal(why, "take 0.16.1"),)
        return ()

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(
            debian=("g++", "gcc", "libc6-dev", "python3-dev"),
            python=("packaging>=24.2", "pybind11", env.setuptools, "wheel"),
            git=(self.git,),
            gives=(self.gives or f"megatron-core=={self.release.version}",),
        )

    def build(self, env: RecipeEnv) -> list[Any]:
        makefile = (
            f"printf 'default: ;\\n' > {DATASETS}/Makefile",
            f"echo 'include {DATASETS}/Makefile' >> MANIFEST.in",
        )
        return python_wheel(
            "megatron-lm",
            git=self.git,
            before=() if self.commit else makefile,
            # the version must not depend on whether setup.py finds git
            environment={"NO_VCS_VERSION": "1"},
        )

    def runtime(self, env: RecipeEnv) -> Runtime:
        # Jobs compile with torch.utils.cpp_extension, which runs ninja: --recompute-modules, and --use-nccl-ub, whose
        # code includes nccl.h. pynvml is imported by --fine-grained-activation-offloading and --log-straggler.
        at_run_time = ("ninja", "nvidia-ml-py", "packaging>=24.2", "psutil", "pybind11")
        nccl = {"CPATH": "/opt/nccl/include", "LIBRARY_PATH": "/opt/nccl/lib"} if env.has("nccl") else {}
        return Runtime(debian=("make",), python=(self.release.numpy, *at_run_time), env=nccl)

    def extensions(self) -> tuple[str, ...]:
        return () if self.commit else (HELPERS,)

    def _nccl_headers(self, env: RecipeEnv) -> list[Check]:
        """Return the check that what a job compiles finds NCCL's header and library."""
        if not (env.has("nccl") and env.has("torch")):
            return []
        code = r"printf '#include <nccl.h>\nint main(void) { return NCCL_MAJOR == 0; }\n'"
        command = f"cd /tmp && {code} | gcc -x c - -I/opt/cuda/include -lnccl -o nccl-header && echo compiled"
        return [Check("megatron-lm: a job finds NCCL's header and library", command, "^compiled$")]

    def verify(self, env: RecipeEnv) -> list[Check]:
        if self.commit:
            return [imports("megatron-lm", ("megatron",))]
        expect = self.release.version.replace(".", r"\.")
        return [
            imports("megatron-lm", ("megatron.core",), show="megatron.core.__version__", expect=rf"^{expect}$"),
            imports(
                "megatron-lm: C++ part",
                (HELPERS,),
                show=f"{HELPERS}.build_sample_idx_int32 is not None",
                expect="^True$",
            ),
            imports("megatron-lm: NVML of the driver", ("pynvml",)),
            Check("megatron-lm: ninja, which torch compiles extensions with", "ninja --version", r"^\d+\.\d+"),
            *self._nccl_headers(env),
            imports(
                "megatron-lm: writer of checkpoints",
                (WRITER,),
                show=f"{WRITER}._process_memory() > 0",
                expect="^True$",
            ),
            Check(
                "megatron-lm: make, which every job runs, has nothing to compile",
                f"make -C {env.site_packages}/{DATASETS}",
            ),
            Check(
                "megatron-lm: a checkout finds the headers of pybind11", f"{PYTHON} -m pybind11 --includes", "pybind11"
            ),
        ]
