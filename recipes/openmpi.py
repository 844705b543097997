"""Open MPI with UCX."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from envbuild.sdk import Check, RecipeEnv, Refusal, Released, Runtime, Sources, autotools, rdma

# Tags of open-mpi/ompi.
RELEASES = {
    "5.0.10": "0d48030d410ae8f56790933135b28be1b3920ba1",
    "5.0.9": "b79100b3fbbf45b3c6ed82a6b67b6346f8cfdc41",
    "5.0.8": "84891baf79dc2ff1b66270d2c53f6eb3a6ba3a33",
    "5.0.7": "29341e55efaabf7a6968444b4bb6f1f1fb40d664",
    "5.0.6": "8a5c2ef25dc8e4528f0d3fd2ec91a6578160af95",
    "5.0.2": "6db5e83b737a9b70c4e77a2bcf06ab641adffe2a",
    "4.1.8": "ea8f4d03089018f08451f42f2cfa2467570f395e",
    "4.1.7": "6b7e5d9911d13fad2954f2823779d6c480e08201",
    "4.1.6": "439b23db6288f0370f6fcc80c8c0a06ad86d6873",
    "4.1.5": "42b829b3b3190dd1987d113fd8c2810eb8584007",
    "4.1.0": "9ac5471035b9066462506bc4d92be7a340a8058e",
}
# A checkout, unlike a release's tarball, has no configure script and no generated lexers.
DEBIAN = ("autoconf", "automake", "flex", "g++", "gcc", "libc6-dev", "libtool", "make", "perl", "pkgconf", "zlib1g-dev")
# PRRTE's autogen.pl runs `git submodule status` if this file exists, also outside of a checkout; Open MPI's own and
# PMIx's look for .git first. The released tarball does not contain the file.
SUBMODULES = "rm -f 3rd-party/prrte/.gitmodules"
# The tag is still marked as a release candidate; upstream removes the mark when it packs the tarball.
RELEASE = "sed -i -e 's/^greek=.*/greek=/' -e 's/^tarball_version=.*/tarball_version=/' VERSION"


@dataclass(frozen=True, kw_only=True)
class Openmpi(Released):
    """Open MPI with its UCX point-to-point layer.

    - `provider`: ``debian``, the distribution's packages; ``source``, upstream's repository, compiled in /opt/openmpi;
      or ``base``, that of the base image, in `folder`.
    - `commit`: full hash of a `version` that this recipe does not know.

    From source it uses the image's own UCX, and UCC and CUDA if the image has them. It is built with the PMIx, hwloc
    and libevent of its own repository, so that ``srun --mpi=pmix`` works.
    """

    upstream: ClassVar[str] = "Open MPI"
    repository: ClassVar[str] = "github:open-mpi/ompi"
    releases: ClassVar[Mapping[str, str]] = RELEASES
    prefix: ClassVar[str] = "/opt/openmpi"
    programs: ClassVar[tuple[str, ...]] = ("bin",)
    after: ClassVar[tuple[str, ...]] = ("ucx", "rdma-core", "ucc", "cuda", "libfabric", "efa")
    memory_gb: ClassVar[float] = 0.5

    provider: Literal["debian", "source", "base"] = "debian"
    folder: str = "/usr/local/mpi"  # its folder in NVIDIA's images

    @property
    def builds(self) -> bool:
        return self.provider == "source"

    @property
    def package(self) -> str:
        return "openmpi-bin" if self.provider == "debian" else ""

    @property
    def on_toolkit(self) -> bool:
        return self.provider == "source"  # /opt/cuda may be links into it

    @property
    def cpu_minutes(self) -> float:
        return 20.0 if self.provider == "source" else 0.0

    def development(self, env: RecipeEnv) -> tuple[str, ...]:
        """Return the Debian packages that a build against it needs."""
        if self.provider == "debian":
            return ("libopenmpi-dev",)
        # the linker follows its libraries to libfabric, and that one's to libibverbs
        return rdma.packages(env) if self.provider == "source" and rdma.libfabric(env) else ()

    def link_path(self, env: RecipeEnv) -> dict[str, str]:
        """Return the variable with which the linker finds the libraries in other prefixes that it is linked with; {} if
        there are none."""
        below = [f"{folder}/lib" for name in ("ucx", "ucc") if (folder := env.prefix_of(name))]
        folders = [*below, *rdma.linked_folders(env)] if self.provider == "source" else []
        return {"LD_LIBRARY_PATH": ":".join(folders)} if folders else {}

    def home(self, env: RecipeEnv) -> str:
        """Return the folder with its include and lib."""
        if self.provider == "debian":
            return f"/usr/lib/{env.target.machine}-linux-gnu/openmpi"
        return self.prefix if self.provider == "source" else self.folder

    def mpicc(self, env: RecipeEnv) -> str:
        return "mpicc" if self.provider == "debian" else f"{self.home(env)}/bin/mpicc"

    @property
    def fifth(self) -> bool:
        """Return whether it is 5.x or newer. Older repositories contain copies instead of submodules."""
        return self.version.partition(".")[0] != "4"

    def faults(self) -> dict[str, Refusal]:
        wrong = not re.fullmatch(r"(/[A-Za-z0-9._+-]+)+", self.folder)
        return {self.folder: Refusal("is not the path of a folder")} if wrong else {}

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        if self.provider == "source":
            return self.lacking()
        if self.provider == "base" and not env.on_image:
            why = f"'provider: base' requires a base image with Open MPI, and {env.base} is a distribution"
            return (Refusal(why, "take provider: debian or source, or an image as base"),)
        if self.version and self.provider == "debian":
            why = f"{env.distribution.name} has only one version of Open MPI, and the spec requests {self.version}"
            return (Refusal(why, "remove the version, or write provider: source"),)
        return ()

    def provides(self, env: RecipeEnv) -> tuple[str, ...]:
        return ("libmpi",)

    def promised(self, env: RecipeEnv) -> tuple[str, ...]:
        return (f"{self.folder}/bin/mpirun", f"{self.folder}/lib/libmpi.so") if self.provider == "base" else ()

    def sources(self, env: RecipeEnv) -> Sources:
        if self.provider != "source":
            return Sources()
        return Sources(debian=(*DEBIAN, *self.development(env)), git=(self.source(),))

    def build(self, env: RecipeEnv) -> list[Any]:
        ucx, libfabric, fifth = env.prefix_of("ucx"), rdma.libfabric(env), self.fifth
        options = [
            "--disable-static",
            "--enable-mpi-fortran=no",
            # daemons on other nodes are started by path: their shells do not read this image's profile
            "--enable-prte-prefix-by-default" if fifth else "--enable-mpirun-prefix-by-default",
            *(f"--with-{name}=internal" for name in ("hwloc", "libevent", "pmix", *(("prrte",) if fifth else ()))),
            *(["--disable-sphinx"] if fifth else ["--without-verbs"]),  # UCX handles InfiniBand
            f"--with-ucx={ucx}" if ucx else "--without-ucx",
            "--with-ucc=/opt/ucc" if ucx and env.has("ucc") else "--without-ucc",
            f"--with-ofi={libfabric}" if libfabric else "--without-ofi",
            "--with-cuda=/opt/cuda" if env.has("cuda") else "--without-cuda",
            *(["--with-cuda-libdir=/opt/cuda/lib64/stubs"] if env.has("cuda") and fifth else []),
        ]
        return autotools(
            self.source(),
            self.prefix,
            title="openmpi: compiled",
            before=[RELEASE, *([SUBMODULES] if fifth else [])],
            bootstrap="./autogen.pl",
            configure=options,
            # configure reads who compiled it, and where, from the environment first
            environment={"CFLAGS": "-g0 -O3", "USER": "root", "HOSTNAME": "envbuild", **self.link_path(env)},
        )

    def runtime(self, env: RecipeEnv) -> Runtime:
        # a container's root is the only user that a build or a test has; jobs run as the submitting user
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if self.provider == "debian":
            # The library has the suffix of the time_t transition in trixie and noble; openmpi-bin depends on the right
            # one. Debian's UCX would add 240 MB of AMD's libraries and LLVM, and a second libucp that the loader does
            # not use. Debian 13 compiles it against UCX 1.18, whose interface later versions preserve.
            replaces = {"libucx0": env.recipes["ucx"].whole} if env.prefix_of("ucx") else {}
            return Runtime(debian=("openmpi-bin", "openssh-client"), env=allowed, replaces=replaces)
        if self.provider == "source":
            return Runtime(debian=("openssh-client", "zlib1g"), env=allowed, libraries=(f"{self.prefix}/lib",))
        return Runtime(env=allowed)

    def verify(self, env: RecipeEnv) -> list[Check]:
        folder = "" if self.provider == "debian" else f"{self.home(env)}/bin/"
        checks = [Check("openmpi: two ranks start", f"{folder}mpirun --oversubscribe -n 2 hostname", r"(?s)\n.+")]
        if self.provider == "source":
            line = rf"\(Open MPI\) {self.whole}$"
            checks.append(Check("openmpi: the requested version", f"{folder}mpirun --version", line))
        if env.has("ucx") and self.provider != "base":
            checks.append(Check("openmpi: UCX point-to-point layer", f"{folder}ompi_info --parsable", r"mca:pml:ucx"))
        if env.prefix_of("ucx") and self.provider != "base":
            checks.append(
                Check(
                    "openmpi: its UCX is the image's own",
                    # 5.x has its components in libmpi, older releases in separate files
                    f"ldd \"$(command -v {folder}ompi_info)\" $(find {self.home(env)} -name 'mca_pml_ucx.so')",
                    r"libucp\.so\.0 => /opt/ucx/lib/",
                )
            )
        return checks
