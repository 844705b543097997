"""NVIDIA's bundle of Open MPI, UCX, UCC, SHARP and the NCCL plugin."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from envbuild.sdk import (
    INPUTS,
    Archive,
    Check,
    OptionError,
    Recipe,
    RecipeEnv,
    Refusal,
    Runtime,
    Sources,
    comment,
    shell,
)

# Archives by name with their sha256, as Azure's HPC images pin them (Azure/azhpc-images, versions.json and
# requirements.json, up to 8e9d055). "inbox" is made for the distribution's rdma-core, the others for NVIDIA's OFED.
ARCHIVES = {
    "hpcx-v2.25.1-gcc-doca_ofed-ubuntu22.04-cuda13-x86_64": (
        "f64228e4d54c6fc83d7ea9ad7048bad1545a58388c9baad9f335d16c881f5d9d"
    ),
    "hpcx-v2.25.1-gcc-doca_ofed-ubuntu24.04-cuda12-x86_64": (
        "12dced766fee0946210693ab7ee8b7a7491082a775db837bcfd73323f155e4a7"
    ),
    "hpcx-v2.25.1-gcc-doca_ofed-ubuntu24.04-cuda13-aarch64": (
        "cfc6816a4ac7932cf65e3f17a47106845728652cfd4d5ad71b0cb9b3ce2a9e48"
    ),
    "hpcx-v2.25.1-gcc-doca_ofed-ubuntu24.04-cuda13-x86_64": (
        "8767bea4f0967a6b0f5e1b31395a431bf5624eaf34c928f109bc2db985f26887"
    ),
    "hpcx-v2.25.1-gcc-inbox-ubuntu24.04-cuda13-x86_64": (
        "409ad5ea645338626a73f23832a83b835f7fbd8c06b95496127c18bb091dd46e"
    ),
    "hpcx-v2.24.1-gcc-doca_ofed-ubuntu22.04-cuda12-x86_64": (
        "6a999297fda98ca833c47a09a6a13e92d4f759d75a9258ec2355304d479e4653"
    ),
    "hpcx-v2.24.1-gcc-doca_ofed-ubuntu22.04-cuda13-x86_64": (
        "622be4b7fc739e42a70578fdc72784bfa8aac3c6a66e89d67142bdbf5227a7eb"
    ),
    "hpcx-v2.24.1-gcc-doca_ofed-ubuntu24.04-cuda12-x86_64": (
        "1cf4cea6b7984a1c274ecc620b2b8f3fc697a05de6f3954ff40fe26939e03708"
    ),
    "hpcx-v2.24.1-gcc-doca_ofed-ubuntu24.04-cuda13-aarch64": (
        "0bc5c26a4f0ca98fd6292aac9d51cc2a4ee3277d38d4011b64eafd133be633b4"
    ),
    "hpcx-v2.23-gcc-doca_ofed-ubuntu24.04-cuda12-x86_64": (
        "b8eea5189ff62125e60b23a6081686e6b98bc9f8cdc778cd179ca5680f7e9e7f"
    ),
    "hpcx-v2.21.2-gcc-doca_ofed-ubuntu20.04-cuda12-x86_64": (
        "bafca09df069c787d5a351e88d9e129381697b1a3f318b06070805d261e841c2"
    ),
    "hpcx-v2.21.2-gcc-doca_ofed-ubuntu22.04-cuda12-x86_64": (
        "d6e6f2d25236679deff29e9cf4a86bd36b3399393d0cff8b4bb8e79f0408d1e4"
    ),
    "hpcx-v2.20-gcc-mlnx_ofed-ubuntu20.04-cuda12-x86_64": (
        "be6b4cc12790f83b9411750bc6fb22e8bb46ff3f578c463b30d2bda2b825a68b"
    ),
    "hpcx-v2.20-gcc-mlnx_ofed-ubuntu22.04-cuda12-x86_64": (
        "81a0d8fb41ff43a9cff589e986e7a08e83e67f2e06616e0eeab069a581a09231"
    ),
    "hpcx-v2.19-gcc-mlnx_ofed-ubuntu20.04-cuda12-x86_64": (
        "b813f86a661672b3e6835a5c97938032ac59c963ef9f95a97cbb7df68137b8d2"
    ),
    "hpcx-v2.19-gcc-mlnx_ofed-ubuntu22.04-cuda12-x86_64": (
        "40e370de8daf13e26ff9d59cc07f9f04748b34b9cee0d3a1610819af838b364d"
    ),
    "hpcx-v2.18-gcc-mlnx_ofed-ubuntu20.04-cuda12-x86_64": (
        "8e088f5ae94576e1d845fbb4ef67c7dc54983555d3583c244dde7e19dc082074"
    ),
    "hpcx-v2.18-gcc-mlnx_ofed-ubuntu22.04-cuda12-x86_64": (
        "1258c060d56a2b650dc697ce91a746976ab9f198e4d46cdba2a5315315214147"
    ),
    "hpcx-v2.16-gcc-mlnx_ofed-ubuntu20.04-cuda12-gdrcopy2-nccl2.18-x86_64": (
        "addda11a710c52268b7a725c13d9cc54c93deddf259c87d8547ad3c0422b87e1"
    ),
    "hpcx-v2.16-gcc-mlnx_ofed-ubuntu22.04-cuda12-gdrcopy2-nccl2.18-x86_64": (
        "97eac5555d54f5fd8da1c354222a1aff2e85eb017682441e06287971a5b95772"
    ),
}
NAME = re.compile(
    r"hpcx-v(?P<version>[0-9.]+)-gcc-(?P<ofed>[A-Za-z0-9_.-]+?)-(?P<os>[a-z]+[0-9.]+)-cuda(?P<cuda>[0-9]+)"
    r"(-[a-z0-9.-]+)?-(?P<machine>x86_64|aarch64)"
)
PARTS = {"UCX": "ucx", "UCC": "ucc", "SHARP": "sharp", "HCOLL": "hcoll", "MPI": "ompi", "OSHMEM": "ompi"}
PLUGIN = "nccl_rdma_sharp_plugin"
LIBRARIES = ("ucx/lib", "ucx/lib/ucx", "ucc/lib", "ucc/lib/ucc", "sharp/lib", "hcoll/lib", "ompi/lib")
# Parts that no image needs: sources to rebuild it, other builds of UCX, its tests, and tools for administrators.
AWAY = ("sources", "docs", "utils", "clusterkit", "modulefiles", "ucx/debug", "ucx/prof", "hcoll/debug", "ompi/tests")


@dataclass(frozen=True, kw_only=True)
class Hpcx(Recipe):
    """HPC-X in /opt/hpcx, from NVIDIA's archive for the distribution, CPU and CUDA.

    - `cuda`: major version of CUDA that the archive is for. Default: that of the image's layer cuda.
    - `plugin`: whether to include its NCCL plugin.
    - `file`, `sha256`: name without .tbz and checksum of an archive that this recipe does not know.

    Everything is in the image's environment and on the loader's path, because srun reads neither the shell functions of
    hpcx-init.sh nor bash.bashrc.
    """

    package: ClassVar[str] = "hpcx"
    prefix: ClassVar[str] = "/opt/hpcx"
    programs: ClassVar[tuple[str, ...]] = ("ompi/bin", "ucx/bin", "ucc/bin", "sharp/bin")
    component: ClassVar[str] = "hpcx"
    after: ClassVar[tuple[str, ...]] = ("rdma-core", "ofed", "cuda")

    cuda: Literal["", "12", "13"] = ""
    plugin: bool = True
    file: str = ""
    sha256: str = ""

    def __post_init__(self) -> None:
        if bool(self.file) != bool(self.sha256):
            raise OptionError("'file' and 'sha256' require each other", "write both: the archive's name and its sha256")

    def faults(self) -> dict[str, Refusal]:
        found = {}
        if self.file and not NAME.fullmatch(self.file):
            found[self.file] = Refusal(
                "is not the name of an archive, such as hpcx-v2.18-gcc-mlnx_ofed-ubuntu22.04-cuda12-x86_64"
            )
        if self.sha256 and not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            found[self.sha256] = Refusal("is not a sha256: 64 hex digits")
        return found

    def major(self, env: RecipeEnv) -> str:
        """Return CUDA's major version; "" if neither the option nor layer cuda states it."""
        cuda = env.recipes.get("cuda")
        return self.cuda or (cuda.version.partition(".")[0] if cuda else "")

    def fitting(self, env: RecipeEnv) -> dict[str, re.Match[str]]:
        """Return the known archives for this distribution, CPU and CUDA, the newest first: name → its parts."""
        wanted = {"os": env.distribution.name.replace(":", ""), "machine": env.target.machine}
        wanted |= {"cuda": self.major(env)} if self.major(env) else {}
        matches = {name: match for name in ARCHIVES if (match := NAME.fullmatch(name))}
        return {name: match for name, match in matches.items() if wanted.items() <= match.groupdict().items()}

    def archive(self, env: RecipeEnv) -> str:
        """Return the name of the archive for this image, without .tbz; "" if none is known."""
        if self.file:
            return self.file
        # the matrix and NVIDIA's release notes write 2.18.0 where the archive has 2.18
        requested = f"{self.version.removesuffix('.0')}." if self.version else ""
        found = {
            name: match["ofed"] == "inbox"
            for name, match in self.fitting(env).items()
            if f"{match['version']}.".startswith(requested)
        }
        return next((name for name, inbox in found.items() if inbox != env.has("ofed")), next(iter(found), ""))

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        found = []
        name = self.archive(env)
        match = NAME.fullmatch(name)
        where = f"{env.distribution.name}, {env.target.machine}, CUDA {self.major(env) or 'any'}"
        if not name:
            why = f"no archive of {f'HPC-X {self.version}'.strip()} is known for {where}"
            others = ", ".join(dict.fromkeys(match["version"] for match in self.fitting(env).values()))
            others = f"one of {others}" if others else " or ".join(images_with_archive(env.target.machine))
            found.append(Refusal(why, f"write file: and sha256: of an archive, take {others}, or remove 'hpcx'"))
        elif match and match["machine"] != env.target.machine:
            found.append(
                Refusal(f"{name} is for another CPU than {env.target.machine}", f"take the archive for {where}")
            )
        elif match and match["os"] != env.distribution.name.replace(":", ""):
            found.append(
                Refusal(f"{name} is for another distribution than {env.distribution.name}", f"take the one for {where}")
            )
        elif match and self.major(env) and match["cuda"] != self.major(env):
            found.append(
                Refusal(
                    f"{name} is for CUDA {match['cuda']}, the image has {self.major(env)}", f"take the one for {where}"
                )
            )
        if not env.has("ofed") and not env.has("rdma-core"):
            found.append(
                Refusal("its UCX needs libibverbs, and the image has none", "add rdma-core or ofed to the layers")
            )
        return tuple(found)

    def provides(self, env: RecipeEnv) -> tuple[str, ...]:
        plugin = ("libnccl-net",) if self.plugin else ()
        return ("libucp", "libucc", "libmpi", "libsharp", "libhcoll", *plugin)

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        # without a version the newest whose archive is known here: the matrix has newer ones as well
        newest = next((match["version"] for match in self.fitting(env).values()), "")
        return {self.component: self.version or (f"<={newest}" if newest else "*")}

    def source(self, env: RecipeEnv) -> Archive:
        name = self.archive(env)
        match = NAME.fullmatch(name)
        number = match["version"] if match else ""
        # from 2.24 on the vendor has one folder for each CUDA
        apart = tuple(int(part) for part in re.findall(r"\d+", number)[:2]) >= (2, 24)
        folder = f"v{number}_cuda{match['cuda']}" if match and apart else f"v{number}"
        digest = self.sha256 or ARCHIVES.get(name, "")
        return Archive("hpcx", f"vendor:hpcx/{folder}/{name}.tbz", f"{name}.tbz", digest)

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(debian=("bzip2",), archives=(self.source(env),))

    def build(self, env: RecipeEnv) -> list[Any]:
        away = [*AWAY, *([] if self.plugin else [PLUGIN])]
        return [
            comment("hpcx: unpacked, and told where it is"),
            shell(
                commands=[
                    f"mkdir -p {self.prefix}",
                    f"tar -xjf {INPUTS}/archives/{self.source(env).file} -C {self.prefix} --strip-components=1 "
                    "--no-same-owner",
                    f"cd {self.prefix}",
                    f"rm -rf {' '.join(away)}",
                    "find . \\( -name '*.la' -o -name '*.a' \\) -delete",
                    # pkg-config files, wrappers and settings contain the folder in which it was built
                    f"grep -rIl /build-result/ . | xargs -r sed -i 's:/build-result/[^/]*:{self.prefix}:g'",
                    "test -x ompi/bin/mpirun && test -x ucx/bin/ucx_info && test -x ucc/bin/ucc_info",
                ]
            ),
        ]

    def runtime(self, env: RecipeEnv) -> Runtime:
        folders = {f"HPCX_{part}_DIR": f"{self.prefix}/{folder}" for part, folder in PARTS.items()}
        mpi = f"{self.prefix}/ompi"
        variables = {
            "HPCX_DIR": self.prefix,
            "HPCX_HOME": self.prefix,
            **folders,
            # Open MPI and PMIx find their parts from here: they were built in another folder
            "OPAL_PREFIX": mpi,
            "PMIX_INSTALL_PREFIX": mpi,
            "OMPI_HOME": mpi,
            "MPI_HOME": mpi,
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        libraries = [*LIBRARIES, *([f"{PLUGIN}/lib"] if self.plugin else [])]
        if self.plugin:
            variables["HPCX_NCCL_RDMA_SHARP_PLUGIN_DIR"] = f"{self.prefix}/{PLUGIN}"
        return Runtime(
            debian=("libnuma1", "openssh-client"),
            env=variables,
            libraries=tuple(f"{self.prefix}/{folder}" for folder in libraries),
        )

    def verify(self, env: RecipeEnv) -> list[Check]:
        start = "mpirun --oversubscribe -n 2"
        return [
            Check("hpcx: its UCX starts", "ucx_info -v", r"Library version: 1\."),
            Check("hpcx: its InfiniBand module", "ucx_info -c -f", r"UCX_RC_MLX5_"),
            Check("hpcx: its UCC starts", "ucc_info -v", r"UCC version"),
            Check("hpcx: the loader finds its libraries", "ldd $(command -v ucc_info)", r"libucc\.so\.1 => /opt/hpcx/"),
            Check("hpcx: two ranks start", f"{start} hostname", r"(?s)\n.+"),
            Check("hpcx: no file contains the path of its build", "! grep -rIl /build-result/ /opt/hpcx", r"\A\s*\Z"),
        ]


def images_with_archive(machine: str) -> list[str]:
    """Return the distributions for which an archive for this CPU is known: ``ubuntu:24.04 with CUDA 13``."""
    matches = [match for name in ARCHIVES if (match := NAME.fullmatch(name)) and match["machine"] == machine]
    return sorted({f"{match['os'].replace('ubuntu', 'ubuntu:')} with CUDA {match['cuda']}" for match in matches})
