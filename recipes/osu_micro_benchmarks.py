"""Benchmarks of MPI: latency and bandwidth."""

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import Archive, Check, Git, Recipe, RecipeEnv, Refusal, Sources, autotools, newest

# sha256 of upstream's release tarballs, from Spack's package osu-micro-benchmarks.
ARCHIVES = {
    "7.5.2": "618de3d0b1122f73a9229177d2da1e5cd62e431190580cb915f2605849cbbbdc",
    "7.5.1": "160d0d5e3c3cb022520ecb247e9875bb0973b1d3cadccd6c17624f8407c52e22",
    "7.5": "1cf84ac5419456202757a757c5f9a4f5c6ecd05c65783c7976421cfd6020b3b3",
    "7.4": "1edd0c2efa61999409bfb28740a7f39689a5b42b1a1b4c66d1656e5637f7cefc",
    "7.3": "8fa25b8aaa34e4b07ab3a4f30b7690ab46b038b08d204a853a9b6aa7bdb02f2f",
    "7.2": "1a4e1f2aab0e65404b3414e23bd46616184b69b6231ce9313d9c630bd6e633c1",
    "7.1": "2c4c931ecaf19e8ab72a393ee732e25743208c9a58fa50023e3fac47064292cc",
    "7.0.1": "04954aea082ba1b90a461ffab82a3cee43fe2d5a60fed99f5cb4585ac7da8c66",
    "6.2": "bb9dbc87dcf8ec6785977a61f6fceee8febf1a682488eaab4c58cf50e4fa985f",
    "5.9": "d619740a1c2cc7c02a9763931546b320d0fa4093c415ff3873c2958e121c0609",
}
# A copy of one old release on GitHub, for sites that reach no other host.
COPY = Git(
    "osu-micro-benchmarks",
    "github:forresti/osu-micro-benchmarks",
    "993f966d750386dd813a3d970b83c7c4938bb926",
)
COPIED = "5.3"
BEFORE_CUDA_13 = 7, 4  # tested: the newest that does not compile with it (cudaMemPrefetchAsync has other arguments)


@dataclass(frozen=True, kw_only=True)
class OsuMicroBenchmarks(Recipe):
    """osu_latency, osu_bw, osu_allreduce and the others, compiled against the image's MPI, in
    /opt/osu-micro-benchmarks.

    - `version`: 5.3 comes from a copy on GitHub, any other version from upstream's download area.
    - `cuda`: whether to compile them with buffers in GPU memory (``osu_bw D D``). 7.4 and older do not compile with
      CUDA 13.
    - `sha256`: checksum of the tarball of a version that this recipe does not know.
    """

    package: ClassVar[str] = "osu-micro-benchmarks"
    prefix: ClassVar[str] = "/opt/osu-micro-benchmarks"
    # not bin, but one folder for each kind
    programs: ClassVar[tuple[str, ...]] = tuple(
        f"libexec/osu-micro-benchmarks/mpi/{kind}" for kind in ("pt2pt", "collective", "one-sided")
    )
    after: ClassVar[tuple[str, ...]] = ("openmpi", "hpcx", "cuda")
    on_toolkit: ClassVar[bool] = True  # /opt/cuda may be links into it
    memory_gb: ClassVar[float] = 0.2
    cpu_minutes: ClassVar[float] = 0.5

    cuda: bool = False
    sha256: str = ""

    @property
    def whole(self) -> str:
        """Return the version that is compiled; "" if it is not known."""
        return self.version if self.sha256 or self.version == COPIED else newest(self.version, ARCHIVES)

    def faults(self) -> dict[str, Refusal]:
        wrong = self.sha256 and not re.fullmatch(r"[0-9a-f]{64}", self.sha256)
        return {self.sha256: Refusal("is not a sha256: 64 hex digits")} if wrong else {}

    def source(self) -> Git | Archive:
        if self.whole == COPIED:
            return COPY
        file = f"osu-micro-benchmarks-{self.whole}.tar.gz"
        digest = self.sha256 or ARCHIVES.get(self.whole, "")
        return Archive("osu-micro-benchmarks", f"vendor:osu-micro-benchmarks/{file}", file, digest)

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        found = []
        if not self.whole:
            known = ", ".join((*ARCHIVES, COPIED))
            found.append(Refusal(f"release {self.version} is not known", f"write its sha256:, or take one of {known}"))
        if not env.has("openmpi") and not env.has("hpcx"):
            found.append(Refusal("it measures MPI, and the image has none", "add openmpi or hpcx to the layers"))
        cuda = env.recipes.get("cuda")
        if self.cuda and not cuda:
            found.append(
                Refusal("'cuda: true' requires a CUDA toolkit, and the image has none", "add cuda to the layers")
            )
        number = tuple(int(part) for part in re.findall(r"\d+", self.whole)[:2])
        if self.cuda and cuda and number <= BEFORE_CUDA_13 and cuda.version.partition(".")[0] == "13":
            why = f"{self.whole} does not compile with CUDA {cuda.version} (cudaMemPrefetchAsync has other arguments)"
            found.append(Refusal(why, "take 7.5 or newer, or cuda: false"))
        return tuple(found)

    def sources(self, env: RecipeEnv) -> Sources:
        openmpi: Any = env.recipes.get("openmpi")
        debian = (*(openmpi.development(env) if openmpi else ()), "g++", "gcc", "libc6-dev", "make")
        source = self.source()
        if isinstance(source, Git):
            return Sources(debian=debian, git=(source,))
        return Sources(debian=debian, archives=(source,))

    def mpi(self, env: RecipeEnv) -> str:
        """Return the folder of mpicc and mpirun, with a slash; "" for those on PATH."""
        if env.has("hpcx"):
            return "/opt/hpcx/ompi/bin/"
        openmpi: Any = env.recipes.get("openmpi")
        compiler = openmpi.mpicc(env) if openmpi else "mpicc"
        return str(compiler).removesuffix("mpicc")

    def build(self, env: RecipeEnv) -> list[Any]:
        options = ["--disable-static"]
        openmpi: Any = env.recipes.get("openmpi")
        environment = {"CC": f"{self.mpi(env)}mpicc", "CXX": f"{self.mpi(env)}mpicxx", "CFLAGS": "-g0 -O2"}
        environment |= openmpi.link_path(env) if openmpi else {}
        if self.cuda:
            options += [
                "--enable-cuda",
                "--with-cuda-include=/opt/cuda/include",
                "--with-cuda-libpath=/opt/cuda/lib64/stubs",
            ]
            environment |= {
                "PATH": "/opt/cuda/bin:$PATH",
                "LDFLAGS": "-L/opt/cuda/lib64",
                "NVCCFLAGS": f"-O2 {env.target.gencode}",
            }
        return autotools(self.source(), self.prefix, title="osu: compiled", configure=options, environment=environment)

    def verify(self, env: RecipeEnv) -> list[Check]:
        # without a fabric: shared memory of the node
        start = f"{self.mpi(env)}mpirun --oversubscribe --mca pml ob1 -n 2"
        # the old release has no size option for point to point, and takes one number for collectives
        one, all_ = ("", "-m 8") if self.whole == COPIED else ("-m 8:8", "-m 8:8")
        return [
            Check(
                "osu: two ranks measure latency over shared memory",
                f"{start} osu_latency {one} -i 100",
                r"(?m)^8 +[0-9.]+",
            ),
            Check("osu: two ranks all-reduce", f"{start} osu_allreduce {all_} -i 100", r"(?m)^8 +[0-9.]+"),
        ]
