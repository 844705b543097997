"""AWS Neuron: runtime, tools, compiler and PyTorch NeuronX for Trainium and Inferentia."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from envbuild.sdk import (
    VENV,
    AptRepository,
    Check,
    PythonIndex,
    Recipe,
    RecipeEnv,
    Refusal,
    Runtime,
    Sources,
    unknown_words,
)

# Fingerprint of the key that signs Neuron's packages, from bottlerocket-os/bottlerocket-kernel-kit, whose
# kmod-6.1-neuron.spec checks aws-neuronx-dkms with it. Its last 16 digits are those that apt prints in upstream's
# setup-troubleshooting.rst.
KEY = "00FA2C1079260870A76D2C285749CAD8646D9185"
# Packages that come from Neuron's index only: the package index has placeholders of these names, with other owners.
PACKAGES = (
    "libneuronxla",
    "neuronx-cc",
    "neuronx-cc-stubs",
    "neuronx-distributed",
    "neuronx-distributed-training",
    "neuronx-hwm",
    "nki",
    "torch-neuronx",
)
ACCELERATORS = r"(?i)(trainium|inferentia2)"
TOOLS = "/opt/aws/neuron/bin"
LIBRARIES = "/opt/aws/neuron/lib"


class Sdk(NamedTuple):
    """Versions of the packages of one release, which are never mixed with those of another.

    `suite` is the part of Neuron's archive that upstream's image of the release uses (also on a later Ubuntu).
    """

    suite: str
    collectives: str
    runtime: str
    tools: str
    torch_neuronx: str
    compiler: str
    distributed: str = ""
    training: str = ""
    nki: str = ""
    xla: str = ""


# aws-neuron/deep-learning-containers, pytorch/training/*/Dockerfile.neuronx at the tags of these names; libneuronxla as
# in upstream's manifest (n2-manifest.json), if that names the one for PyTorch. 2.28.1 has no image of its own: in the
# manifest it differs from 2.28.0 only in the driver. 2.6.0: install_neuron.sh of aws-neuron-parallelcluster-samples,
# which leaves the last part of two versions open. 2.23.0 is left out: image and manifest differ in torch-neuronx.
SDKS = {
    "2.30.0": Sdk(
        "jammy",
        "2.32.28.0-452cba8de",
        "2.32.31.0-0234f5ed2",
        "2.30.10.0-39feaa591",
        "2.9.0.2.14.27725+e2ff0410",
        "2.25.3371.0+f524f7f8",
        "0.19.28093+fc70b593",
        "1.7.0",
        "0.4.0+25940409122.gd30719f9",
        "2.2.16974.0",
    ),
    "2.29.1": Sdk(
        "jammy",
        "2.31.24.0-1a31ba186",
        "2.31.24.0-0b044f4ce",
        "2.29.22.0-b486b0ade",
        "2.9.0.2.13.26312+8e870898",
        "2.24.8799.0+6f62ff7c",
        "0.18.27753+1cafd54f",
        "1.7.0",
        "0.3.0+23928721754.g18aa1271",
        "2.2.16408.0",
    ),
    "2.28.1": Sdk(
        "jammy",
        "2.30.59.0-f5cdefb39",
        "2.30.51.0-faafe26f0",
        "2.28.23.0-f1c114a9d",
        "2.9.0.2.12.22436+0f1dac25",
        "2.23.6484.0+3b612583",
        "0.17.26814+4b18de63",
        "1.7.0",
        "0.2.0+g82fdb402",
        "2.2.15515.0",
    ),
    "2.27.1": Sdk(
        "jammy",
        "2.29.41.0-681fef5f5",
        "2.29.40.0-f954cd7a5",
        "2.27.33.0-5d9c0b901",
        "2.9.0.2.11.19912+e48cd891",
        "2.22.12471.0+b4a00d10",
        "0.16.25997+f431c02e",
        "1.7.0",
        xla="2.2.14584.0",
    ),
    "2.26.1": Sdk(
        "focal",
        "2.28.27.0-bc30ece58",
        "2.28.23.0-dd5879008",
        "2.26.14.0",
        "2.8.0.2.10.16998+e9bf8a50",
        "2.21.33363.0+82129205",
        "0.15.22404+1f27bddf",
        "1.6.0",
        xla="2.2.12677.0",
    ),
    "2.25.0": Sdk(
        "focal",
        "2.27.34.0-ec8cd5e8b",
        "2.27.23.0-8deec4dbf",
        "2.25.145.0",
        "2.7.0.2.9.9357+08e1f40d",
        "2.20.9961.0",
        "0.14.18461+9ac233f2",
        "1.5.0",
        xla="2.2.8201.0",
    ),
    "2.22.0": Sdk(
        "focal",
        "2.24.59.0-838c7fc8b",
        "2.24.53.0-f239092cc",
        "2.22.61.0",
        "2.5.1.2.6.0",
        "2.17.194.0",
        "0.11.0",
        "1.2.0",
        xla="2.2.1630.0",
    ),
    "2.6.0": Sdk("focal", "2.10.37.0*", "2.10.30.0*", "2.6.1.0", "1.12.0.1.4.0", "2.3.0.4"),
}

# NumPy of the releases before 2.27.0, whose documents name none of NumPy 2: the troubleshooting page has 1.22.2 to
# 1.25.2, AWS's image of 2.25.0 installs 1.24.3 to 1.25.2 (docker/common/nxdt_requirements.txt). Python 3.12 has
# no wheel of these. Later ones take 2.X (facts neuron.numpy, neuron.numpy-1). The compiler of 2.6.0 takes older ones.
NUMPY_1 = "numpy>=1.22.2,<=1.25.2; python_version < '3.12'"
OF_NUMPY_1 = ("2.26.1", "2.25.0", "2.22.0")

# PyTorch → the one release of torch-xla on the package index that is compiled for it (2.5 and 2.8 have two, and no
# document read here states which of them torch-neuronx requires). torch-xla's METADATA requires no torch, and its
# libraries are linked with those of the release of the same number: a later patch release of torch is another ABI.
XLA = {"2.7": "2.7.0", "2.9": "2.9.0"}


@dataclass(frozen=True, kw_only=True)
class Neuron(Recipe):
    """User space of the Neuron SDK, all of one release, `sdk`.

    The runtime and collectives libraries and the tools come from Neuron's archive, the compiler and PyTorch NeuronX
    from its index. The driver (aws-neuronx-dkms) and the OCI hook belong to the host.

    Default of `sdk`: 2.28.1, the last release for which upstream supports training with PyTorch/XLA and NxD Training;
    2.29.1 and 2.30.0 still have all packages. torch and torch-xla are the wheels of the package index, with which
    torch-neuronx is linked, in the one release that both exist in; on x86-64 torch requires CUDA libraries, which
    nothing here uses. torch-xla is linked with the shared library of Python, and the compiler runs g++ and libxml2.

    site.yaml maps Neuron's archive (``apt:aws-neuron``) and index (``pip:aws-neuron``) to their addresses.
    """

    shorthand: ClassVar[str] = "sdk"
    after: ClassVar[tuple[str, ...]] = ("torch",)

    sdk: str = "2.28.1"

    def faults(self) -> dict[str, Refusal]:
        return unknown_words((self.sdk,), SDKS, "is not a known release")

    @property
    def release(self) -> Sdk:
        return SDKS[self.sdk]

    @property
    def compiler(self) -> str:
        """Return the compiler's version as it prints it."""
        return plain(self.release.compiler)

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        found = []
        target = env.target
        if target.arch != "amd64":
            found.append(Refusal(f"there are no Neuron packages for {target.arch}", "take a target with arch: amd64"))
        if not re.search(ACCELERATORS, target.gpu):
            has = f"nodes with {target.gpu}" if target.gpu else "nodes without an accelerator"
            found.append(Refusal(f"target {target.name} has {has}", "take a target with Trainium or Inferentia2"))
        if env.has("cuda"):
            found.append(Refusal("Trainium and Inferentia do not run CUDA", "remove 'cuda'"))
        return tuple(found)

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        release = self.release
        return {
            "neuron-sdk": f"=={self.sdk}",
            "neuron-runtime": f"=={plain(release.runtime)}",
            "neuron-collectives": f"=={plain(release.collectives)}",
            "neuron-tools": f"=={plain(release.tools)}",
            "neuronx-cc": f"=={plain(release.compiler)}",
            "torch-neuronx": f"=={plain(release.torch_neuronx)}",
        }

    @property
    def linked(self) -> tuple[str, ...]:
        """Return the requirements of the torch and torch-xla that torch-neuronx is linked with; () if not known."""
        number = XLA.get(".".join(self.release.torch_neuronx.split(".")[:2]), "")
        return (f"torch=={number}", f"torch-xla=={number}") if number else ()

    def sources(self, env: RecipeEnv) -> Sources:
        keys = "GPG-PUB-KEY-AMAZON-AWS-NEURON.PUB"
        # old releases use torch-xla from Neuron's index as well, later ones PyTorch's own
        xla = ("torch-xla",) if self.sdk == "2.6.0" else ()
        return Sources(
            repositories=(AptRepository("apt:aws-neuron", self.release.suite, ("main",), KEY, keys),),
            indexes=(PythonIndex("pip:aws-neuron", (*PACKAGES, *xla)),),
        )

    def runtime(self, env: RecipeEnv) -> Runtime:
        release = self.release
        wanted = {
            "torch-neuronx": release.torch_neuronx,
            "neuronx-cc": release.compiler,
            "libneuronxla": release.xla,
            "nki": release.nki,
        }
        return Runtime(
            debian=(
                f"aws-neuronx-collectives={release.collectives}",
                f"aws-neuronx-runtime-lib={release.runtime}",
                f"aws-neuronx-tools={release.tools}",
                shared_python(env),  # NEEDED by torch-xla's _XLAC
                "g++",
                "libxml2",  # NEEDED by walrus_driver of neuronx-cc (huggingface/optimum-neuron#698)
            ),
            core=(
                *self.linked,
                *(f"{name}=={version}" for name, version in wanted.items() if version),
                *((NUMPY_1,) if self.sdk in OF_NUMPY_1 else ()),
            ),
            env={"PATH": TOOLS},
            libraries=(LIBRARIES,),
        )

    def verify(self, env: RecipeEnv) -> list[Check]:
        python = f"{VENV}/bin/python"
        names = "import importlib.metadata as m; print(*(m.version(n) for n in ('torch-neuronx', 'neuronx-cc')))"
        versions = " ".join(re.escape(plain(text)) + r"\S*" for text in (self.release.torch_neuronx, self.compiler))
        both = "import torch_xla, torch_neuronx; print('imported', torch_xla.__version__)"
        xla = self.linked[-1].partition("==")[2] if self.linked else ""
        cores = "import torch_neuronx, torch_xla.core.xla_model as x; print(x.xla_device())"
        own = self.compiler.replace(".", r"\.")
        return [
            Check("neuron: the packages are those of the SDK", f'{python} -c "{names}"', rf"^{versions}$"),
            Check(
                "neuron: torch_xla and torch_neuronx import without a device",
                f'{python} -c "{both}"',
                rf"^imported {re.escape(xla)}",
            ),
            Check("neuron: the compiler prints its version", f"{VENV}/bin/neuronx-cc --version", own),
            Check("neuron: the loader finds the runtime library", "ldconfig -p", rf"libnrt\.so\S* .*{LIBRARIES}/"),
            Check(
                "neuron: the loader finds the collectives library", "ldconfig -p", rf"libnccom\.so\S* .*{LIBRARIES}/"
            ),
            Check("neuron: the tools are present", f"ls {TOOLS}", r"(?m)^neuron-ls$(?s:.*)^neuron-top$"),
            # these need the accelerator
            Check("neuron: devices", f"{TOOLS}/neuron-ls --json-output", r"nc_count", tier="gpu"),
            Check("neuron: torch sees a NeuronCore", f'{python} -c "{cores}"', r"xla:0", tier="gpu"),
        ]


def shared_python(env: RecipeEnv) -> str:
    """Return the package with libpythonX.Y.so.1.0 of the image's Python.

    Python 3.12 of Ubuntu 24.04 took part in the transition of time_t; that of Debian 13 appeared after it.
    """
    name = f"libpython{env.python}"
    return env.distribution.package(name) if env.python == "3.12" else name


def plain(version: str) -> str:
    """Return a version without the suffix of upstream's builds: 2.32.31.0 of 2.32.31.0-0234f5ed2, 2.9.0.2.14.27725 of
    2.9.0.2.14.27725+e2ff0410."""
    return re.split(r"[-+*]", version)[0]
