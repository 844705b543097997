"""CUDA toolkit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from envbuild.sdk import (
    DRIVER,
    AptRepository,
    Check,
    OptionError,
    Recipe,
    RecipeEnv,
    Refusal,
    Runtime,
    Sources,
    comment,
    debian_toolkit,
    environment,
    shell,
    stubs,
)

# nvcc needs crt, nvvm and cccl beside it. Since 13.0 the wheel of that name contains the compiler
# (nvidia-cuda-nvcc-cu12 does not).
COMPILER = ("nvcc", "crt", "nvvm", "cccl", "cudart", "cuobjdump", "nvdisasm", "cuxxfilt")
HEADERS = (
    "nvml",
    "profiler",
    "nvrtc",
    "nvtx",
    "cublas",
    "curand",
    "cusparse",
    "cusolver",
)  # torch 2.15 does not require curand itself
# Parts that an image without the compiler contains: UCX, UCC and NCCL's tests link cudart; verify reads cubins with
# the tools.
RUNTIME = ("cudart", "cuobjdump", "nvdisasm")

# Packages that NVIDIA's own development images install (Dockerfiles of nvidia/cuda, "devel"), without its debugger
# and NPP: the compiler, the libraries with their headers, NVML's header, and the tools that read cubins.
APT = ("minimal-build", "libraries-dev", "nvml-dev", "nvtx", "cupti-dev", "cuobjdump", "nvdisasm")
# The package with cuda_profiler_api.h, which kernels of apex, Megatron-LM and GPT-NeoX include: a profiler before 11.8,
# which NVIDIA's development images install for it, and a package of its own since.
PROFILER, PROFILER_APART = ("nvprof", "profiler-api"), (11, 8)
# Parts of the toolkit that no program in an image runs or links. The static libraries of cudart and cudadevrt remain:
# nvcc links them by default.
HEAVY = (
    *("doc", "nsight*", "extras/demo_suite", "extras/Debugger", "compute-sanitizer", "gds", "samples"),
    *("bin/nvprof", "targets/*/lib/libaccinj64*", "targets/*/lib/libcuinj64*"),
)

# NVIDIA's archive has one folder for each distribution, each signed with one key. The fingerprints are those that
# public installation scripts pin; each matches the name of the key file in the archive.
CUDATOOLS = ("EB693B3035CD5710E231E123A4B469963BF863CC", "3bf863cc.pub")
REPOSITORIES = {
    "debian:12": ("debian12", *CUDATOOLS),
    "debian:13": ("debian13", "02182E60104FCDC26EAE1B8597A5D4CB8793F200", "8793F200.pub"),
    "ubuntu:20.04": ("ubuntu2004", *CUDATOOLS),
    "ubuntu:22.04": ("ubuntu2204", *CUDATOOLS),
    "ubuntu:24.04": ("ubuntu2404", *CUDATOOLS),
}
FOLDERS = {"amd64": "x86_64", "arm64": "sbsa"}  # of the archive, below the distribution's

# Releases of Debian whose component non-free has the toolkit: its version, and the newest gcc that crt/host_config.h
# of it admits, on which the package nvidia-cuda-toolkit depends (12.4.1-2: "g++-13 | …").
DEBIAN = {"debian:13": ("12.4", "13")}
# Libraries of the driver that its packages depend on (">= 550"): the host's, never in an image.
OF_DRIVER = {"libcuda1": "550", "libnvidia-ml1": "550"}
BASE = "/usr/local/cuda"


@dataclass(frozen=True, kw_only=True)
class Cuda(Recipe):
    """CUDA toolkit as the prefix that builds expect: /opt/cuda with bin, include, nvvm, lib64 and lib64/stubs.

    - `version`: CUDA major.minor. Default: the CUDA of torch. A floating nvcc would be newer.
    - `provider`: ``wheels`` of the package index (CUDA 13 and later), ``apt``, NVIDIA's archive for the distribution,
      ``debian``, the package of Debian's component non-free (12.4 on Debian 13, with g++-13, which is the newest that
      its nvcc accepts), or ``base``, /usr/local/cuda of the base image. The wheels install everything below
      site-packages/nvidia, without lib64 and without unversioned library names, so with them the prefix consists of
      links.
    - `key`: fingerprint of the key that signs NVIDIA's archive, if it is not the known one.
    - `flavor`: ``devel`` or ``runtime``, as NVIDIA calls its images; ``runtime`` requires ``provider: wheels`` or
      ``debian``. With ``devel`` the image contains the whole toolkit, for jobs that compile (ops of DeepSpeed and of
      torch.utils.cpp_extension). With ``runtime`` only builds see the compiler and the headers; the image contains the
      CUDA runtime and the tools that read cubins, and is 0.45 GB smaller with the wheels. torch.compile needs no
      toolkit, because Triton contains its own ptxas.

    lib64/stubs contains libcuda.so and libnvidia-ml.so for the linker, and its folder ``driver`` contains the same
    under the driver's names (LD_LIBRARY_PATH of checks on a machine without a GPU). Neither is on the loader's path.
    """

    prefix: ClassVar[str] = "/opt/cuda"
    programs: ClassVar[tuple[str, ...]] = ("bin",)
    component: ClassVar[str] = "cuda"

    provider: Literal["wheels", "apt", "debian", "base"] = "wheels"
    key: str = ""
    flavor: Literal["devel", "runtime"] = "devel"

    def __post_init__(self) -> None:
        if self.flavor == "runtime" and self.provider not in ("wheels", "debian"):
            hint = "take provider: wheels or debian, or flavor: devel"
            raise OptionError(f"'flavor: runtime' is for provider: wheels or debian, not for {self.provider}", hint)

    @property
    def bins(self) -> tuple[str, ...]:
        return super().bins if self.flavor == "devel" else ()

    @property
    def package(self) -> str:
        return "cuda-toolkit" if self.provider == "wheels" else ""

    @property
    def wheel_folder(self) -> str:
        """Folder of the wheels of a CUDA release, below ``nvidia`` of the Python packages."""
        return f"cu{self.version.partition('.')[0]}"

    @property
    def on_toolkit(self) -> bool:
        return self.provider == "wheels"

    @property
    def host_compiler(self) -> str:
        return next(iter(DEBIAN.values()))[1] if self.provider == "debian" else ""

    # the prefix has no library of the driver
    @property
    def meets(self) -> tuple[str, ...]:
        return ("driver.libcuda-in-image",) if self.provider == "debian" else ()

    def faults(self) -> dict[str, Refusal]:
        bad = self.key and (len(self.key) != 40 or set(self.key.upper()) - set("0123456789ABCDEF"))
        return {self.key: Refusal("is not the fingerprint of a key: 40 hex digits")} if bad else {}

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        major = self.version.partition(".")[0]
        if self.provider == "wheels" and major.isdigit() and int(major) < 13:
            why = f"the wheels of CUDA {self.version} do not contain the compiler, those of 13.0 and newer do"
            return (Refusal(why, "take provider: apt, or provider: base on an image that has the toolkit"),)
        if self.provider == "apt" and env.distribution.name not in REPOSITORIES:
            return (
                Refusal(
                    f"NVIDIA's archive has no folder for {env.distribution.name}",
                    f"take one of these as base: {', '.join(sorted(REPOSITORIES))}",
                ),
            )
        if self.provider == "debian":
            return self.not_debians(env)
        if self.provider == "base" and not env.on_image:
            why = f"'provider: base' requires a base image with the toolkit, and {env.base} is a distribution"
            return (Refusal(why, "take provider: wheels or apt, or an image as base"),)
        return ()

    def not_debians(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        """Return the reason why the distribution of the image does not have this toolkit."""
        known = ", ".join(f"{name} (CUDA {version})" for name, (version, _) in DEBIAN.items())
        if env.on_image or env.distribution.name not in DEBIAN:
            why = f"'provider: debian' takes the package of a Debian that this recipe knows, and the base is {env.base}"
            return (Refusal(why, f"take one of these as base: {known}"),)
        version, _ = DEBIAN[env.distribution.name]
        if self.version and self.version != version:
            why = f"the toolkit of {env.distribution.name} is CUDA {version}, not {self.version}"
            return (Refusal(why, f'write version: "{version}", or take provider: wheels or apt'),)
        return ()

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        return {**super().matrix(env), "cuda-from": self.provider}

    def promised(self, env: RecipeEnv) -> tuple[str, ...]:
        paths = ("bin/nvcc", "include/cuda.h", "lib64/stubs/libcuda.so", "lib64/stubs/libnvidia-ml.so")
        return tuple(f"{BASE}/{path}" for path in paths) if self.provider == "base" else ()

    def sources(self, env: RecipeEnv) -> Sources:
        if self.provider == "wheels":
            devel = () if self.flavor == "devel" else (self.wheels(*COMPILER, *HEADERS),)
            return Sources(debian=("gcc",), devel=devel)  # gcc compiles stubs of the driver's libraries
        if self.provider == "base":
            return Sources()
        if self.provider == "debian":
            suite = env.distribution.codename
            return Sources(
                debian=(f"g++-{self.host_compiler}", "nvidia-cuda-toolkit"),
                repositories=(AptRepository(f"debian:{suite}/non-free", suite, ("non-free",), ""),),
                replaces=OF_DRIVER,
            )
        folder, key, file = REPOSITORIES[env.distribution.name]
        origin = f"apt:nvidia-cuda/{folder}/{FOLDERS[env.target.arch]}"
        number = self.version.replace(".", "-")
        return Sources(
            debian=tuple(f"cuda-{part}-{number}" for part in (*APT, self.profiler)),
            repositories=(AptRepository(origin, "./", (), self.key or key, "" if self.key else file),),
        )

    @property
    def profiler(self) -> str:
        """Return the part of NVIDIA's archive that has cuda_profiler_api.h."""
        release = tuple(int(part) for part in self.version.split(".") if part.isdigit())
        return PROFILER[not release or release >= PROFILER_APART]

    def wheels(self, *extras: str) -> str:
        """Return the requirement of NVIDIA's package for a release of the toolkit, with some of its parts as extras."""
        return f"cuda-toolkit[{','.join(extras)}]=={self.version}.*"

    def runtime(self, env: RecipeEnv) -> Runtime:
        # UCX, UCC and NCCL's tests are linked with cudart and must find it without torch in the process
        libraries = (f"{self.prefix}/lib64",)
        if self.provider == "debian":
            return self.debian_runtime(libraries)
        if self.flavor == "runtime":
            return Runtime(toolkit=(self.wheels(*RUNTIME),), libraries=libraries)
        wheels = (self.wheels(*COMPILER, *HEADERS),) if self.provider == "wheels" else ()
        return Runtime(toolkit=wheels, env={"CUDA_HOME": self.prefix}, libraries=libraries)

    def debian_runtime(self, libraries: tuple[str, ...]) -> Runtime:
        """Return the needs of an image with Debian's toolkit; where jobs compile, they compile with its gcc."""
        if self.flavor == "runtime":
            return Runtime(libraries=libraries)
        gcc, gxx = f"gcc-{self.host_compiler}", f"g++-{self.host_compiler}"
        # torch.utils.cpp_extension refuses a newer c++ than nvcc's header does
        variables = {"CC": gcc, "CXX": gxx, "CUDA_HOME": self.prefix}
        return Runtime(debian=(gxx,), env=variables, libraries=libraries)

    def devel(self, env: RecipeEnv) -> list[Any]:
        if self.flavor == "devel":
            return []
        if self.provider == "debian":
            return debian_toolkit(self.prefix, self.host_compiler)
        root = self.prefix
        return [
            comment("the toolkit out of its wheels, as NVIDIA's own installer lays it out"),
            shell(
                commands=[
                    f"mv {root}/python/nvidia/{self.wheel_folder}/* {root}/",
                    f"mv {root}/lib {root}/lib64",
                    f"ln -s lib64 {root}/lib",
                    unversioned(f"{root}/lib64", f"{root}/lib64"),
                    f"{root}/bin/nvcc --version",
                ]
            ),
        ]

    def build(self, env: RecipeEnv) -> list[Any]:
        root, libraries = self.prefix, f"{self.prefix}/lib64"
        named = [
            f"mkdir -p {libraries}/stubs/{DRIVER}",
            *(f"ln -s ../{name}.so {libraries}/stubs/{DRIVER}/{name}.so.1" for name in ("libcuda", "libnvidia-ml")),
        ]
        check = f"{root}/bin/nvcc --version"
        if self.provider == "apt":
            moved = [
                f"mkdir -p {root}",
                f"cp -a /usr/local/cuda-{self.version}/. {root}",
                f"rm -rf {' '.join(f'{root}/{item}' for item in HEAVY)}",
                f"find {root}/targets -name '*_static*.a' ! -name 'libcudart_static.a' -delete",
                f"test -e {root}/include/cuda_profiler_api.h",
            ]
            return [comment("the toolkit, moved"), shell(commands=[*moved, *named, check])]
        if self.provider == "debian":
            return self.debian_build()
        if self.provider == "base":
            # a link for each item: the base has no stubs/driver, and the layer adds files only below /opt/cuda
            linked = [
                f"mkdir -p {libraries}/stubs",
                f'for item in {BASE}/*; do case "${{item##*/}}" in lib64) ;; *) ln -s "$item" {root}/;; esac; done',
                f"ln -s {BASE}/lib64/*.so* {BASE}/lib64/*.a {libraries}/",
                f"ln -s {BASE}/lib64/stubs/*.so {libraries}/stubs/",
            ]
            return [comment("the base's toolkit"), shell(commands=[*linked, *named, check])]
        wheels = f"{env.site_packages}/nvidia/{self.wheel_folder}"
        if self.flavor == "runtime":
            return [
                comment("the part of the toolkit that the image keeps, as links"),
                shell(
                    commands=[
                        f"ln -sf {wheels}/bin/cuobjdump {wheels}/bin/nvdisasm {root}/bin/",
                        f"ln -sf {wheels}/lib/libcudart.so.* {libraries}/",
                    ]
                ),
                *stubs(f"{root}/include", f"{libraries}/stubs"),
            ]
        return [
            comment("the toolkit as a prefix"),
            shell(
                commands=[
                    f"mkdir -p {libraries}",
                    f"ln -s {wheels}/bin {wheels}/include {wheels}/nvvm {root}/",
                    f"ln -s lib64 {root}/lib",
                    f"ln -s {wheels}/lib/*.so* {wheels}/lib/*.a {libraries}/",
                    unversioned(f"{wheels}/lib", libraries),
                    check,
                ]
            ),
            *stubs(f"{root}/include", f"{libraries}/stubs"),
        ]

    def debian_build(self) -> list[Any]:
        """Return the part of Debian's toolkit that the image keeps."""
        root, libraries = self.prefix, f"{self.prefix}/lib64"
        path = environment(variables={"PATH": f"{root}/host/bin:$PATH"})  # gcc of the stubs
        driver_stubs = [path, *stubs(f"{root}/include", f"{libraries}/stubs")]
        if self.flavor == "devel":
            return [*debian_toolkit(root, self.host_compiler), *driver_stubs]
        kept = [
            f"mkdir -p {root}/bin {libraries}",
            f"cp -a /usr/bin/cuobjdump /usr/bin/nvdisasm {root}/bin/",
            f"cp -a /usr/lib/*-linux-gnu/libcudart.so.* {libraries}/",
        ]
        return [comment("the part of the toolkit that the image keeps"), shell(commands=kept), *driver_stubs]

    def verify(self, env: RecipeEnv) -> list[Check]:
        program = (
            "import ctypes; driver = ctypes.CDLL('libcuda.so.1'); nvml = ctypes.CDLL('libnvidia-ml.so.1'); "
            "print('stand-ins', driver.cuInit(0), nvml.nvmlInit_v2())"
        )
        compiler = Check(
            "cuda: nvcc has the requested version", f"{self.prefix}/bin/nvcc --version", rf"release {self.version},"
        )
        if self.flavor == "runtime":
            command = f"! test -e {self.prefix}/bin/nvcc && {self.prefix}/bin/cuobjdump --version"
            compiler = Check("cuda: the image does not contain the compiler", command, rf"release {self.version},")
        return [
            compiler,
            Check(
                "cuda: the stubs of the driver load for checks, and are not on the loader's path",
                f'LD_LIBRARY_PATH={self.prefix}/lib64/stubs/driver python3 -c "{program}"; '
                "! ldconfig -p | grep -E 'libcuda\\.so|libnvidia-ml'",
                r"stand-ins 34 12" if self.provider in ("wheels", "debian") else "stand-ins",
            ),
        ]


def unversioned(folder: str, links: str) -> str:
    """Return the command that creates the names that linkers search for, libNAME.so, in `links`.

    The wheels' `folder` contains only libNAME.so.MAJOR.
    """
    return (
        f'for library in {folder}/*.so.*; do name=$(basename "$library"); link="{links}/${{name%%.so.*}}.so"; '
        'test -e "$link" || ln -s "$library" "$link"; done'
    )
