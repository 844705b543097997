"""Interface between the processes of a job and their launcher (PMIx)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import Check, DebianOrSource, RecipeEnv, Runtime, Sources, autotools

# Tags of openpmix/openpmix.
RELEASES = {
    "6.1.0": "ad8d0b75757819175b8d864114bcc65048bce4c3",
    "5.0.11": "3795947f0fa625f406f1d085d1e70a8413b3febc",
    "5.0.10": "52275072f255ce0b94bd714e0e83f6a34d471c51",
    "5.0.9": "a84ed686ae84fb6a4b251b29b75ecc38f4621ad9",
    "5.0.8": "907b1ccaeec61a1197f0ee5264d4fef20b257b84",
    "5.0.7": "4cf5affd34765d70ac3cc716aa77a8d755f1b192",
    "5.0.1": "77e8095a5bb8bb231f589fa9a95650440da2b02f",
    "4.2.9": "eebd966ae14a47b2298d678734015761306c3bd3",
    "4.2.8": "d1c1ed0c2e64f19ad49291241a43630ea7fdce28",
    "4.2.2": "29bacec619f2ed0f7ce0db067bea520dc4f45859",
    "4.1.2": "ce4663b0478441bcdd9ca01a306a45db506a29d3",
    "3.2.5": "29b6ce807c4e534f0a7a22844ac3830259e3d897",
    "3.1.6": "ae99c6deb184aa33a54ebfc18a9f867db3abdf65",
    "3.1.5": "edebb2427081d1f4f63c5b03ccf475660de5545d",
}
DEBIAN = (
    "autoconf",
    "automake",
    "flex",
    "gcc",
    "libc6-dev",
    "libevent-dev",
    "libhwloc-dev",
    "libtool",
    "make",
    "perl",
    "pkgconf",
    "python3",
    "zlib1g-dev",
)
# A tag's VERSION is still marked as a release candidate; upstream removes the mark when it packs the tarball.
RELEASE = "sed -i -e 's/^greek=.*/greek=/' -e 's/^tarball_version=.*/tarball_version=/' VERSION"
# autogen.pl runs `git submodule status` if this file exists, from 5.0.2 on in a checkout alone. The released tarball
# does not contain the file.
SUBMODULES = "rm -f .gitmodules"
LOOKS_FOR_CHECKOUT = (5, 0, 2)


@dataclass(frozen=True, kw_only=True)
class Pmix(DebianOrSource):
    """libpmix for programs that use PMIx themselves, such as NVSHMEM's bootstrap; Open MPI contains its own.

    - `provider`: ``debian``, the distribution's package, or ``source``, upstream's repository, compiled in /opt/pmix.
      Default: ``source`` if the spec sets `version`, else ``debian``.
    - `version`: that of the nodes. ``srun --mpi=pmix`` uses the plugin of the node's Slurm (``srun --mpi=list``:
      pmix_v3, v4, v5), and client and plugin should be of the same family (3.x, 4.x, 5.x).
    - `commit`: full hash of a `version` that this recipe does not know.
    """

    upstream: ClassVar[str] = "PMIx"
    repository: ClassVar[str] = "github:openpmix/openpmix"
    releases: ClassVar[Mapping[str, str]] = RELEASES
    prefix: ClassVar[str] = "/opt/pmix"
    programs: ClassVar[tuple[str, ...]] = ("bin",)
    memory_gb: ClassVar[float] = 0.2

    @property
    def package(self) -> str:
        return "" if self.builds else "libpmix2"

    @property
    def runs_git(self) -> bool:
        return tuple(int(part) for part in re.findall(r"\d+", self.whole)[:3]) < LOOKS_FOR_CHECKOUT

    def provides(self, env: RecipeEnv) -> tuple[str, ...]:
        return ("libpmix",)

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(debian=DEBIAN, git=(self.source(),)) if self.builds else Sources()

    def build(self, env: RecipeEnv) -> list[Any]:
        if not self.builds:
            return []
        return autotools(
            self.source(),
            self.prefix,
            title="pmix: compiled",
            before=[RELEASE, *([SUBMODULES] if self.runs_git else [])],
            bootstrap="./autogen.pl",
            configure=[
                "--disable-static",
                "--disable-debug",
                "--disable-man-pages",
                "--without-munge",
                "--with-hwloc",
                "--with-libevent",  # without a path: its libraries are in the folder of the architecture
            ],
            # configure reads who compiled it, and where, from the environment first
            environment={"CFLAGS": "-g0 -O2", "USER": "root", "HOSTNAME": "envbuild"},
        )

    def runtime(self, env: RecipeEnv) -> Runtime:
        if not self.builds:
            return Runtime(debian=(env.distribution.package("libpmix2"),))
        # by their names in the distribution: libevent has the suffix of the time_t transition, hwloc does not
        event = tuple(env.distribution.package(f"libevent-{part}-2.1-7") for part in ("core", "pthreads"))
        return Runtime(debian=(*event, "libhwloc15", "zlib1g"), libraries=(f"{self.prefix}/lib",))

    def verify(self, env: RecipeEnv) -> list[Check]:
        program = (
            "import ctypes; pmix = ctypes.CDLL('libpmix.so.2'); pmix.PMIx_Get_version.restype = ctypes.c_char_p; "
            "print(pmix.PMIx_Get_version().decode())"
        )
        # before 4.0 the library reports the number alone
        expect = rf"^(Open)?(PMIx )?{re.escape(self.whole)}\b" if self.builds else "PMIx [0-9]"
        return [Check("pmix: the library reports its version", f'python3 -c "{program}"', expect)]
