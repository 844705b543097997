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
    shell,
    stubs,
)

# nvcc needs crt, nvvm and cccl beside it; since 13.0 the wheel of that name holds the compiler (nvidia-cuda-nvcc-cu12
# never did).
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
)  # torch 2.15 does not ask for curand itself
# What an image without the compiler keeps: UCX, UCC and NCCL's tests link cudart; verify reads cubins with the tools.
RUNTIME = ("cudart", "cuobjdump", "nvdisasm")

# What NVIDIA's own development images install (Dockerfiles of nvidia/cuda, "devel"), without its debugger, profilers
# and NPP: the compiler, the libraries with their headers, NVML's header, and the tools that look into cubins.
APT = ("minimal-build", "libraries-dev", "nvml-dev", "nvtx", "cupti-dev", "nvdisasm")
# Of the toolkit, what nobody runs or links in an image. cudart's and cudadevrt's static libraries stay: nvcc links them
# unless it is told otherwise.
HEAVY = ("doc", "nsight*", "extras/demo_suite", "extras/Debugger", "compute-sanitizer", "gds", "samples")

# NVIDIA's archive has one folder for each distribution and signs each with one key; fingerprints as public
# installation scripts pin them (each agrees with the file name that the archive offers the key under).
CUDATOOLS = ("EB693B3035CD5710E231E123A4B469963BF863CC", "3bf863cc.pub")
REPOSITORIES = {
    "debian:12": ("debian12", *CUDATOOLS),
    "debian:13": ("debian13", "02182E60104FCDC26EAE1B8597A5D4CB8793F200", "8793F200.pub"),
    "ubuntu:20.04": ("ubuntu2004", *CUDATOOLS),
    "ubuntu:22.04": ("ubuntu2204", *CUDATOOLS),
    "ubuntu:24.04": ("ubuntu2404", *CUDATOOLS),
}
FOLDERS = {"amd64": "x86_64", "arm64": "sbsa"}  # of the archive, below the distribution's
BASE = "/usr/local/cuda"


@dataclass(frozen=True, kw_only=True)
class Cuda(Recipe):
    """The toolkit as a prefix that builds expect: /opt/cuda with bin, include, nvvm, lib64 and lib64/stubs.

    `version` is CUDA major.minor; left out, it is that of torch's own CUDA: a floating nvcc would be a newer one.
    `provider` says where it comes from: ``wheels`` of the package index (CUDA 13; the wheels put everything below
    site-packages/nvidia, without lib64 and unversioned library names: the prefix is links), ``apt``, NVIDIA's archive
    for the distribution, or ``base``, the base image's own /usr/local/cuda. `key` is the fingerprint of the key that
    signs NVIDIA's archive, where it is another than the known one.

    `flavor` is NVIDIA's word for its images: ``devel`` leaves the whole toolkit in the image, for jobs that compile
    (DeepSpeed's and torch.utils.cpp_extension's ops); with ``runtime`` the compiler and the headers serve the builds
    alone and the image has the CUDA runtime and what reads cubins: 0.45 GB less. torch.compile needs no toolkit, since
    Triton brings its own ptxas. Only the wheels come apart in this way.

    lib64/stubs holds libcuda.so and libnvidia-ml.so to link with, and in its folder ``driver`` the same under the
    driver's names (LD_LIBRARY_PATH of a check on a machine without a GPU). Neither is on the loader's path.
    """

    prefix: ClassVar[str] = "/opt/cuda"
    programs: ClassVar[tuple[str, ...]] = ("bin",)
    component: ClassVar[str] = "cuda"

    provider: Literal["wheels", "apt", "base"] = "wheels"
    key: str = ""
    flavor: Literal["devel", "runtime"] = "devel"

    def __post_init__(self) -> None:
        if self.flavor == "runtime" and self.provider != "wheels":
            hint = "take provider: wheels, or flavor: devel"
            raise OptionError(f"'flavor: runtime' is for provider: wheels, not for {self.provider}", hint)

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

    def faults(self) -> dict[str, Refusal]:
        bad = self.key and (len(self.key) != 40 or set(self.key.upper()) - set("0123456789ABCDEF"))
        return {self.key: Refusal("is not the fingerprint of a key: 40 hex digits")} if bad else {}

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        major = self.version.partition(".")[0]
        if self.provider == "wheels" and major.isdigit() and int(major) < 13:
            why = f"the wheels of CUDA {self.version} hold no compiler, those of 13.0 and newer do"
            return (Refusal(why, "take provider: apt, or provider: base on an image that has the toolkit"),)
        if self.provider == "apt" and env.distribution.name not in REPOSITORIES:
            return (
                Refusal(
                    f"NVIDIA's archive has no folder for {env.distribution.name}",
                    f"it has {', '.join(sorted(REPOSITORIES))}",
                ),
            )
        if self.provider == "base" and not env.on_image:
            why = f"its toolkit is to come from the base, and {env.base} is made from packages without one"
            return (Refusal(why, "take provider: wheels or apt, or an image as base"),)
        return ()

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        return {**super().matrix(env), "cuda-from": self.provider}

    def promised(self, env: RecipeEnv) -> tuple[str, ...]:
        paths = ("bin/nvcc", "include/cuda.h", "lib64/stubs/libcuda.so", "lib64/stubs/libnvidia-ml.so")
        return tuple(f"{BASE}/{path}" for path in paths) if self.provider == "base" else ()

    def sources(self, env: RecipeEnv) -> Sources:
        if self.provider == "wheels":
            devel = () if self.flavor == "devel" else (self.wheels(*COMPILER, *HEADERS),)
            return Sources(debian=("gcc",), devel=devel)  # gcc: for the stand-ins of the driver's libraries
        if self.provider == "base":
            return Sources()
        folder, key, file = REPOSITORIES[env.distribution.name]
        origin = f"apt:nvidia-cuda/{folder}/{FOLDERS[env.target.arch]}"
        number = self.version.replace(".", "-")
        return Sources(
            debian=tuple(f"cuda-{part}-{number}" for part in APT),
            repositories=(AptRepository(origin, "./", (), self.key or key, "" if self.key else file),),
        )

    def wheels(self, *extras: str) -> str:
        """NVIDIA's package that names a release of the toolkit, with some of its parts."""
        return f"cuda-toolkit[{','.join(extras)}]=={self.version}.*"

    def runtime(self, env: RecipeEnv) -> Runtime:
        # what is linked with cudart finds it without torch in the process (UCX, UCC, NCCL's tests)
        libraries = (f"{self.prefix}/lib64",)
        if self.flavor == "runtime":
            return Runtime(toolkit=(self.wheels(*RUNTIME),), libraries=libraries)
        wheels = (self.wheels(*COMPILER, *HEADERS),) if self.provider == "wheels" else ()
        return Runtime(toolkit=wheels, env={"CUDA_HOME": self.prefix}, libraries=libraries)

    def devel(self, env: RecipeEnv) -> list[Any]:
        if self.flavor == "devel":
            return []
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
            ]
            return [comment("the toolkit, moved"), shell(commands=[*moved, *named, check])]
        if self.provider == "base":
            # links, not one link: the folder for checks is not the base's, and a layer adds only below /opt/cuda
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

    def verify(self, env: RecipeEnv) -> list[Check]:
        program = (
            "import ctypes; driver = ctypes.CDLL('libcuda.so.1'); nvml = ctypes.CDLL('libnvidia-ml.so.1'); "
            "print('stand-ins', driver.cuInit(0), nvml.nvmlInit_v2())"
        )
        compiler = Check(
            "cuda: nvcc is the version asked for", f"{self.prefix}/bin/nvcc --version", rf"release {self.version},"
        )
        if self.flavor == "runtime":
            command = f"! test -e {self.prefix}/bin/nvcc && {self.prefix}/bin/cuobjdump --version"
            compiler = Check("cuda: the compiler stayed with the builds", command, rf"release {self.version},")
        return [
            compiler,
            Check(
                "cuda: the driver's stand-ins answer for checks, and are nowhere on the loader's path",
                f'LD_LIBRARY_PATH={self.prefix}/lib64/stubs/driver python3 -c "{program}"; '
                "! ldconfig -p | grep -E 'libcuda\\.so|libnvidia-ml'",
                r"stand-ins 34 12" if self.provider == "wheels" else "stand-ins",
            ),
        ]


def unversioned(folder: str, links: str) -> str:
    """Command that makes the names in `links` which linkers look for: libNAME.so; the wheels' `folder` holds only
    libNAME.so.MAJOR."""
    return (
        f'for library in {folder}/*.so.*; do name=$(basename "$library"); link="{links}/${{name%%.so.*}}.so"; '
        'test -e "$link" || ln -s "$library" "$link"; done'
    )
