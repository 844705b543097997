"""PyTorch."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from envbuild.sdk import (
    PYTHON,
    STUB_DRIVER,
    VENV,
    Check,
    Git,
    OptionError,
    PythonIndex,
    Recipe,
    RecipeEnv,
    Refusal,
    Runtime,
    Sources,
    beside_torch,
    python_wheel,
    two_ranks_beside_torch,
    unknown_words,
    written,
)

BESIDE = ("torchaudio", "torchvision")  # packages that PyTorch's own indexes have for each build of torch
CHANNEL = r"cpu|cu(\d{2})(\d)"
# Channels with a build of torch 1.10 or newer (envbuild/matrix/data/torch.yaml). Newer channels are accepted as well.
CHANNELS = ("cu132", "cu130", "cu129", "cu128", "cu126", "cu124", "cu121", "cu118", "cu117", "cu116", "cu113", "cu111")
# Prints the folder of the Python that a worker of torchrun has.
WORKER = (
    f"{written('/tmp/worker.py', 'import sys; print(sys.prefix)')} && "
    "torchrun --standalone --nproc_per_node 1 /tmp/worker.py"
)
# Triton and Inductor run gcc and g++ and include Python.h; nvcc of /opt/cuda uses g++ as its host compiler.
COMPILER = ("g++", "gcc", "libc6-dev", "python3-dev")
# Requirements of the wheel apart from CUDA (METADATA of the 2.x wheels).
NEEDS = ("filelock", "fsspec>=0.8.5", "jinja2", "networkx>=2.5.1", "setuptools", "sympy>=1.13.3", "typing-extensions")

UCC_INFO = "/opt/hpcx/ucc/bin/ucc_info"  # of HPC-X in NVIDIA's images, as NVIDIA/cloudai runs it
# Builds of torch before this one are compiled for NumPy 1: with NumPy 2 Tensor.numpy() and torch.from_numpy() raise
# "Numpy is not available" (fact numpy.torch-2). The wheels do not require a NumPy, so nothing else keeps 2 away.
NUMPY_2 = (2, 3)
# torch.utils.cpp_extension imports setuptools, and so does `import triton` up to 3.2. Wheels before torch 2.5 do not
# require it, later ones before 2.11 only on Python 3.12 and newer; and a venv has none of its own. 82 is what the first
# release with a bound excludes (fact torch.setuptools), and up to torch 2.1 pkg_resources is needed as well.
REQUIRES_SETUPTOOLS, BOUNDS_SETUPTOOLS = (2, 5), (2, 11)


@dataclass(frozen=True, kw_only=True)
class Torch(Recipe):
    """PyTorch from one of four sources, `provider`:

    - ``index``: the wheel of the package index with the CUDA libraries that it pins; version ``2.15`` is its
      newest patch release
    - ``vendor``: PyTorch's own index for `channel` (``cu113``, ``cu126``, ``cpu``)
    - ``source``: compiled from `commit` of pytorch/pytorch, with UCC if the image has layer ucc
    - ``base``: that of the base image; with ``ucc: true`` it must be built with UCC, and the image must have UCC with
      CUDA and NCCL, as NVIDIA's images with HPC-X

    `beside` lists packages that exist for each build of torch and come from the same source: ``[torchvision]``, or
    with a version ``[torchvision==0.11.2]``.

    `compiler` adds the distribution's C and C++ compilers and Python's headers to the image: 309 MB on Debian 13 (81 MB
    as packages) in addition to 3.2 GB of wheels. It is the default because torch.compile fails without them: Triton
    compiles its launcher with gcc and Python.h at the first call on every node, and Inductor its CPU kernels with g++.
    DeepSpeed, Megatron-LM and torch.utils.cpp_extension (with the package ninja) compile ops, for which nvcc needs a
    compiler as well. Write ``compiler: false`` if the jobs of an image compile nothing. With ``base`` the base image's
    compilers are used.
    """

    package: ClassVar[str] = "torch"
    component: ClassVar[str] = "torch"
    wheel: ClassVar[bool] = True  # of provider source; see `builds`
    # not measured; an extension's nvcc job over torch's headers takes 2.0 to 2.8 GB
    memory_gb: ClassVar[float] = 4.0

    provider: Literal["index", "vendor", "source", "base"] = "index"
    channel: str = ""
    beside: tuple[str, ...] = ()
    commit: str = ""
    compiler: bool = True
    ucc: bool = False

    def __post_init__(self) -> None:
        if (self.provider == "vendor") != bool(self.channel):
            hint = "write both, such as channel: cu126, or neither"
            raise OptionError("'provider: vendor' and 'channel' require each other", hint)
        if (self.provider == "source") != bool(self.commit):
            hint = "write both: 'commit' is the full hash of upstream's tag"
            raise OptionError("'provider: source' and 'commit' require each other", hint)
        if self.provider == "source" and self.release.count(".") != 2:
            raise OptionError("'provider: source' requires a full version", "write version: 2.15.0")
        if self.provider in ("source", "base") and self.beside:
            hint = "remove it, or write provider: index or vendor"
            raise OptionError("'beside' requires a provider with packages of an index", hint)
        if self.ucc and self.provider != "base":
            hint = "add the layers ucc and torch-ucc, or write provider: base"
            raise OptionError("'ucc' is for provider: base", hint)

    def faults(self) -> dict[str, Refusal]:
        found: dict[str, Refusal] = {}
        if self.channel and not re.fullmatch(CHANNEL, self.channel):
            what = "is not a channel of PyTorch's own index: cpu, or cu with three digits"
            found |= unknown_words((self.channel,), ("cpu", *CHANNELS), what)
        pattern = rf"({'|'.join(BESIDE)})(==[0-9]+(\.[0-9]+)*)?"
        wrong = [text for text in self.beside if not re.fullmatch(pattern, text)]
        return found | unknown_words(
            wrong, BESIDE, "is not a package of torch's indexes", other="a version follows as in torchvision==0.11.2"
        )

    @property
    def builds(self) -> bool:
        return self.provider == "source"

    @property
    def release(self) -> str:
        """Return the version without the channel (2.6.0 of 2.6.0+cu126)."""
        return self.version.partition("+")[0]

    @property
    def has_cuda(self) -> bool:
        """Return whether this build of torch supports GPUs, as far as its options state."""
        return self.channel != "cpu"

    def is_before(self, release: tuple[int, int]) -> bool:
        """Return whether the version is an older one; False if the spec leaves it open."""
        numbers = tuple(int(part) for part in self.release.split(".")[:2] if part.isdigit())
        return len(numbers) == 2 and numbers < release

    @property
    def numpy(self) -> tuple[str, ...]:
        """Return the requirement of a NumPy that this build of torch can exchange arrays with; () if it takes any."""
        return ("numpy<2",) if self.is_before(NUMPY_2) else ()

    def setuptools(self, env: RecipeEnv) -> tuple[str, ...]:
        """Return the requirement of setuptools that the wheel needs and does not state; () if it states it."""
        old = self.is_before(BOUNDS_SETUPTOOLS) and int(env.python.partition(".")[2]) < 12
        wheel = self.provider in ("index", "vendor")
        return ("setuptools<82",) if wheel and (old or self.is_before(REQUIRES_SETUPTOOLS)) else ()

    # `meets` and `after` are class variables in other recipes. Packages of `beside` come from the source of torch.
    @property
    def meets(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("torchvision.same-cuda",) if self.beside else ()

    # Layers that torch is compiled against are below it, a toolkit from wheels is above it.
    @property
    def after(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("cuda", "nccl", "ucx", "ucc") if self.provider == "source" else ()

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        if self.provider == "base" and not env.on_image:
            return (Refusal(f"the base {env.base} is a distribution and has no torch", "write provider: index"),)
        if self.provider == "source" and env.target.sm and not env.has("cuda"):
            return (Refusal("torch is compiled for a GPU with a CUDA toolkit", "add the layer cuda"),)
        return ()

    def provides(self, env: RecipeEnv) -> tuple[str, ...]:
        return ("libtorch",)

    def promised(self, env: RecipeEnv) -> tuple[str, ...]:
        if self.provider != "base":
            return ()
        # /usr/local/lib/python3.12/dist-packages in NVIDIA's images, /opt/conda/lib/python3.11/site-packages in others
        library = f"/*/*/lib/python{env.python}/*-packages/torch/lib/libtorch_python.so"
        return (library, UCC_INFO) if self.ucc else (library,)

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        whole = self.release.count(".") == 2
        if self.provider == "vendor":
            if whole:  # 2.6.0+cu126 is a build of its own in the matrix
                return {"torch": f"=={self.release}+{self.channel}", "channel": "pytorch"}
            wanted = {"torch": self.release or "*", "channel": "pytorch"}
            cuda = re.fullmatch(CHANNEL, self.channel)
            return wanted | {"torch-cuda": f"{cuda[1]}.{cuda[2]}" if cuda and cuda[1] else "-"}
        if self.provider == "base":
            return super().matrix(env)  # the matrix knows the channel of the base's torch
        native = {"torch-ucc": "native"} if self.provider == "source" and env.has("ucc") else {}
        return {**super().matrix(env), "channel": self.provider, **native}

    def requirements(self) -> tuple[str, ...]:
        """Return torch and the packages of `beside`, as requirements."""
        suffix = f"+{self.channel}" if self.provider == "vendor" else ""
        wanted = ""
        if self.release:
            wanted = f"=={self.release}{suffix if self.release.count('.') > 1 else '.*'}"
        beside = (f"{text}{suffix}" if "==" in text else text for text in self.beside)
        return (f"torch{wanted}", *beside)

    def sources(self, env: RecipeEnv) -> Sources:
        if self.provider == "vendor":
            return Sources(indexes=(PythonIndex(f"pip:pytorch/{self.channel}", ("torch", *BESIDE)),))
        if self.provider != "source":
            return Sources()
        # pyproject.toml and requirements-build.txt of pytorch/pytorch
        needs = ("cmake>=3.27", "ninja", "numpy", "packaging", "pyyaml", "requests", "setuptools>=77,<82", "six")
        return Sources(
            debian=("g++", "gcc", "libc6-dev", "make", "python3-dev"),
            python=(*needs, "typing-extensions>=4.10"),
            git=(self.git,),
            gives=(f"torch=={self.release}",),
        )

    @property
    def git(self) -> Git:
        return Git("pytorch", "github:pytorch/pytorch", self.commit, f"v{self.release}", ("*",))

    def build(self, env: RecipeEnv) -> list[Any]:
        if self.provider != "source":
            return []
        flags = {
            "PYTORCH_BUILD_VERSION": self.release,
            "PYTORCH_BUILD_NUMBER": "1",  # without it the version gets a suffix of the commit
            "BUILD_TEST": "0",
            "MAX_JOBS": "$ENVBUILD_JOBS",
            "USE_CUDA": "0",
        }
        if env.has("cuda"):
            flags |= {
                "USE_CUDA": "1",
                "CUDA_HOME": "/opt/cuda",
                "TORCH_CUDA_ARCH_LIST": env.target.cuda_arch_list,
            }
        if env.has("nccl"):
            flags |= {"USE_SYSTEM_NCCL": "1", "NCCL_ROOT": "/opt/nccl"}
        if env.has("ucc"):
            # its CMake files refuse USE_UCC alone, and find UCC and UCX in config mode
            flags |= {
                "USE_UCC": "1",
                "USE_SYSTEM_UCC": "1",
                "UCC_HOME": "/opt/ucc",
                "UCX_HOME": "/opt/ucx",
                "CMAKE_PREFIX_PATH": "/opt/ucc:/opt/ucx",
            }
        return python_wheel("torch", git=self.git, environment=flags)

    def runtime(self, env: RecipeEnv) -> Runtime:
        locked = env.versions.get("torch", "") or (self.release if self.provider == "source" else "")
        # pyxis and enroot's hook set the rendezvous variables only for images that state their PyTorch
        variables = {"PYTORCH_VERSION": locked} if locked else {}
        if self.provider == "base":
            # torchrun of the base starts its workers with the base's Python, which has no package of the venv
            return Runtime(env={**variables, "PYTHON_EXEC": PYTHON})
        core = NEEDS if self.provider == "source" else self.requirements()
        return Runtime(
            debian=COMPILER if self.compiler else (), core=(*core, *self.numpy, *self.setuptools(env)), env=variables
        )

    def verify(self, env: RecipeEnv) -> list[Check]:
        program = (
            "import torch; print(torch.__version__, torch.distributed.is_nccl_available()); "
            "print(torch.ones(3).sum().item())"
        )
        gloo = (
            "import os, torch, torch.distributed as d; "
            "d.init_process_group('gloo'); t = torch.ones(4); d.all_reduce(t); "
            # in one write: of two unbuffered prints at the same time the lines were mixed
            "os.write(1, b'sum %d\\n' % int(t.sum())); d.destroy_process_group()"
        )
        nccl = self.has_cuda and (self.provider != "source" or env.has("nccl"))
        checks = [
            beside_torch("torch: imports", program, rf"{nccl}\n3\.0"),
            two_ranks_beside_torch(
                "torch: two-rank all-reduce over gloo", "/tmp/gloo.py", r"sum 8\n(?s:.*)sum 8", source=gloo
            ),
            starts_workers("torchrun" if self.provider == "base" else f"{VENV}/bin/torchrun"),
        ]
        if self.provider == "base":
            checks.append(
                Check("torch: torchrun starts workers with the Python of the venv", WORKER, rf"^{re.escape(VENV)}$")
            )
        if self.compiler and self.provider != "base":
            checks.append(compiles())
        if self.numpy and self.provider != "base":
            arrays = "import torch, numpy; print('from', int(torch.from_numpy(numpy.arange(4)).sum()))"
            checks.append(beside_torch("torch: exchanges arrays with NumPy", arrays, "^from 6$"))
        if self.setuptools(env):
            extension = "import torch, torch.utils.cpp_extension as made; print('builds', made.CUDAExtension.__name__)"
            checks.append(beside_torch("torch: can compile extensions", extension, "^builds CUDAExtension$"))
        if self.ucc or (self.provider == "source" and env.has("ucc")):
            built = "import torch; print(torch.distributed.is_ucc_available())"
            checks.append(beside_torch("torch: built with UCC", built, "^True$"))
        if self.ucc:
            with_driver = f"LD_LIBRARY_PATH={STUB_DRIVER}:$LD_LIBRARY_PATH {UCC_INFO} -s"
            # by name; HPC-X has mlx5 between them
            expect = r"cuda=\d+ (?:\S+ )*nccl=\d+ "
            checks.append(Check("torch: UCC of the base has CUDA and NCCL", with_driver, expect))
        if self.beside:
            names = [re.split("=", text)[0] for text in self.beside]
            program = f"import torch, {', '.join(names)}; print(torch.ops.{names[0]} is not None)"
            checks.append(beside_torch(f"torch: {', '.join(names)} import", program, "True"))
        return checks


def starts_workers(launcher: str) -> Check:
    """Return the check that torchrun starts workers: its agent in this process, and two shells without an import.

    `launcher`: its program, a path or a name on PATH."""
    words = ["--standalone", "--nproc_per_node", "2", "--no_python", "sh", "-c", "echo worker $RANK of $WORLD_SIZE"]
    program = (
        f"import torch, shutil, torch.distributed.run; assert shutil.which({launcher!r}); "
        f"torch.distributed.run.main({words})"
    )
    return beside_torch("torch: torchrun starts two workers", program, r"worker [01] of 2\n(?s:.*)worker [01] of 2")


def compiles() -> Check:
    """Return the check that the image's compilers build an extension module that its Python loads.

    Triton does so with its launchers, and torch.utils.cpp_extension with ops.
    """
    source = (
        "#include <Python.h>\n"
        "#include <stdlib.h>\n"
        'static PyModuleDef made = {PyModuleDef_HEAD_INIT, "made", NULL, -1, NULL};\n'
        "PyMODINIT_FUNC PyInit_made(void) { return PyModule_Create(&made); }\n"
    )
    headers = "import sysconfig; print(sysconfig.get_paths()['include'])"
    return Check(
        "torch: the C and C++ compilers build modules that Python loads",
        f"mkdir -p /tmp/made && cd /tmp/made && {written('made.c', source)} && for compiler in gcc g++; do "
        f'$compiler -shared -fPIC -I"$({PYTHON} -c "{headers}")" made.c -o made.so && '
        f'{PYTHON} -c "import made" && echo "$compiler compiles" || exit 1; done',
        r"^gcc compiles\ng\+\+ compiles$",
    )
