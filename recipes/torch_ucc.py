"""The ucc process group for the stock wheel of PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from envbuild.sdk import (
    INPUTS,
    PYTHON,
    STUB_DRIVER,
    VENV,
    WORK,
    Archive,
    Check,
    Recipe,
    RecipeEnv,
    Refusal,
    Runtime,
    Sources,
    beside_torch,
    comment,
    environment,
    shell,
    two_ranks_alone,
    two_ranks_beside_torch,
    written,
)

DATA = Path(__file__).with_name("data") / "torch_ucc"
TORCH = "2.15.0"  # the version that the edits were made for and that was compared with gloo
# Versions of torch that the plugin is compiled for → methods that the header of that version names differently.
NAMES: Mapping[str, Mapping[str, str]] = {TORCH: {}, "2.6.0": {"reduce_scatter_single": "_reduce_scatter_base"}}
PARTS = (
    "compat.h",
    "edits.py",
    "envbuild_torch_ucc/__init__.py",
    "plugin.cpp",
    "pyproject.toml",
    "setup.py",
)
COMPARE = "/usr/lib/envbuild/checks/torch_ucc.py"
DEBIAN = Archive(
    "pytorch",
    "debian:pool/main/p/pytorch/pytorch_2.6.0+dfsg.orig.tar.xz",
    "pytorch_2.6.0+dfsg.orig.tar.xz",
    "099a9601bc40d67656e75735c44abedb0fbe92d08817852ab7472eebb7e6ddff",
)


@dataclass(frozen=True, kw_only=True)
class TorchUcc(Recipe):
    """``init_process_group("ucc")`` without compiling torch, as the package envbuild-torch-ucc.

    The wheel contains the declaration of PyTorch's class but not the class. Its three source files are compiled as an
    extension. CUDA tensors are supported if the image has layer cuda.

    - `version`: that of torch, 2.15.0 or 2.6.0.
    - `source`: ``debian``, the source package of the Debian archive (2.6.0, adapted to the headers of another wheel),
      or ``tag``, upstream's tag.

    Use it as ``init_process_group("cpu:gloo,cuda:ucc")``: UCC cannot reduce float16 tensors in CPU memory, but reports
    success. The package raises an exception instead, and the check in the finished image shows when a later UCC can.
    """

    package: ClassVar[str] = "envbuild-torch-ucc"
    wheel: ClassVar[bool] = True
    on_venv: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("torch", "cuda", "nccl", "ucx", "ucc")
    requires: ClassVar[tuple[str, ...]] = ("torch", "ucc")
    memory_gb: ClassVar[float] = 2.2  # the largest of four files, over torch's headers
    cpu_minutes: ClassVar[float] = 1.6

    version: str = TORCH
    source: Literal["debian", "tag"] = "debian"

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        found = []
        known = " and ".join(NAMES)
        if self.version not in NAMES:
            reason = f"its sources are adapted to torch {known}, and torch {self.version} was not tested"
            found.append(Refusal(reason, "remove its version"))
        torch = env.recipes["torch"]
        provider, release = getattr(torch, "provider", "index"), torch.version.partition("+")[0]
        if provider in ("source", "base"):
            found.append(
                Refusal(
                    f"torch with provider: {provider} has its own ucc process group, or none can be added",
                    "remove 'torch-ucc', or use a wheel of torch (provider: index)",
                )
            )
        elif not f"{self.version}.".startswith(f"{release}." if release else ""):
            other = next((name for name in NAMES if f"{name}.".startswith(f"{release}.")), "")
            reason = f"its sources are adapted to torch {known}, and torch {release} was not tested"
            hint = f"write torch: {self.version}"
            if other:
                reason = f"it is for torch {self.version}, and the image has torch {release}"
                hint = f'write torch-ucc: "{other}"'
            found.append(Refusal(reason, hint))
        if not env.recipes["ucc"].builds:
            found.append(
                Refusal("it is compiled against UCC's headers in /opt/ucc", "use a ucc that is compiled there")
            )
        return tuple(found)

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        return {"torch-ucc": "plugin", "torch": self.version.rpartition(".")[0]}

    @property
    def archive(self) -> Archive:
        if self.source == "debian":
            return DEBIAN
        return Archive("pytorch", f"github:pytorch/pytorch@v{self.version}", f"pytorch-{self.version}.tar.gz")

    def part(self, name: str) -> str:
        """Return the text of a file of the wheel's source, for the header of this version."""
        text = (DATA / name).read_text(encoding="utf-8")
        for newest, own in NAMES.get(self.version, {}).items() if name == "plugin.cpp" else ():
            text = text.replace(newest, own)
        return text

    @property
    def edits(self) -> str:
        """Return the word for edits.py: ``debian`` for Debian's source with headers of a later version."""
        return "tag" if f"_{self.version}+" in self.archive.file else self.source

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(
            debian=("g++", "gcc", "libc6-dev", "python3-dev"),
            python=("ninja", "numpy", env.setuptools),
            archives=(self.archive,),
            gives=(f"envbuild-torch-ucc=={self.version}",),
        )

    def build(self, env: RecipeEnv) -> list[Any]:
        folder = f"{WORK}/torch-ucc"
        variables = {
            "PATH": f"{VENV}/bin:$PATH",
            "MAX_JOBS": "$ENVBUILD_JOBS",
            "TORCH_UCC_VERSION": self.version,
            "UCC_HOME": env.recipes["ucc"].prefix,
        }
        if env.has("cuda"):
            variables |= {"TORCH_UCC_CUDA": "1", "CUDA_HOME": "/opt/cuda"}
        return [
            comment("torch-ucc: three files of PyTorch's source, fitted to the wheel's headers"),
            shell(
                commands=[
                    f"mkdir -p {folder}/envbuild_torch_ucc {INPUTS}/out",
                    f"cd {folder}",
                    *(written(part, self.part(part)) for part in PARTS),
                    f"{PYTHON} edits.py {INPUTS}/archives/{self.archive.file} . {self.edits}",
                ]
            ),
            environment(variables=variables),
            comment("torch-ucc: the wheel"),
            shell(
                commands=[
                    f"cd {folder}",
                    f'"$UV" build --wheel --no-build-isolation --python {PYTHON} --out-dir {INPUTS}/out .',
                ]
            ),
        ]

    def runtime(self, env: RecipeEnv) -> Runtime:
        # `2.15` of layer torch must not become an untested patch release
        # numpy: torch's collectives of objects need it, and the check tests them
        program = (DATA / "compare.py").read_text("utf-8")
        return Runtime(core=(f"torch=={self.version}",), python=("numpy",), files={COMPARE: program})

    def extensions(self) -> tuple[str, ...]:
        return ("envbuild_torch_ucc._C",)

    def verify(self, env: RecipeEnv) -> list[Check]:
        names = "import torch; print(*sorted(torch.distributed.Backend._plugins))"
        # one rank: the exception is raised before anything is sent
        guard = (
            "import torch, torch.distributed as d\n"
            "d.init_process_group('ucc', store=d.HashStore(), rank=0, world_size=1)\n"
            "try: d.all_reduce(torch.ones(2, dtype=torch.float16))\n"
            "except RuntimeError as error: print('refused:', str(error).splitlines()[0])\n"
            "d.destroy_process_group()"
        )
        checks = [
            beside_torch("torch-ucc: torch knows the process group", names, r"\bUCC\b"),
            beside_torch(
                "torch-ucc: float16 on CPU is an error, not a wrong result", guard, "refused: .*cpu:gloo,cuda:ucc"
            ),
            two_ranks_beside_torch(
                "torch-ucc: two ranks on CPU compute the same as gloo, except for the known defect of float16",
                COMPARE,
                r"float16 on CPU: unchanged, the known defect(?s:.*)( 0 wrong\n?(?s:.*)){2}",
            ),
        ]
        if env.has("cuda"):
            checks.append(
                Check(
                    "torch-ucc: one CUDA runtime, one NCCL, one UCX in the process (stub driver)",
                    two_ranks_alone(COMPARE, options="--libraries", environment=f"LD_LIBRARY_PATH={STUB_DRIVER}"),
                    r"mapped: libcudart 1, libnccl 1, libucp 1, libucc 1, .*libucc_tl_nccl.*libuct_cuda",
                )
            )
            command = f"{VENV}/bin/torchrun --standalone --nproc-per-node gpu {COMPARE} --device cuda"
            checks.append(
                Check("torch-ucc: all GPUs of a node compute the right results", command, " 0 wrong", tier="gpu")
            )
        return checks
