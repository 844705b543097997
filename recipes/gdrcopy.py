"""Access to GPU memory from the CPU."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import Check, RecipeEnv, Released, Runtime, Sources, comment, folder, shell, source, tidy

# Tags of NVIDIA/gdrcopy.
RELEASES = {
    "2.6": "93c606bbcaa10457cbbab93163aa446d902b983d",
    "2.5.2": "c91ad9f178e5fb729fc5b6dc62a77c3bb364d6c9",
    "2.5.1": "0f7366e73b019e7facf907381f6b0b2f5a1576e4",
    "2.5": "bda1f60346ffd564b12245662758286a6a5d18d6",
    "2.4.4": "9ecf5e58bb947dcd20a759c63f4f1cbe2b1b6458",
    "2.4.1": "3ab6776e63e2905d1c5f407deb6f71dcb741aa11",
    "2.3": "75f24806239b6e481240e517fdb022f26b90ab0b",
}


@dataclass(frozen=True, kw_only=True)
class Gdrcopy(Released):
    """libgdrapi in /opt/gdrcopy, compiled from NVIDIA's repository; UCX uses it for small messages from GPU memory.

    Only the library is built. Its kernel module gdrdrv belongs to the host; enroot's GPU hook makes /dev/gdrdrv
    available in a container if the host has it.
    """

    upstream: ClassVar[str] = "GDRCopy"
    repository: ClassVar[str] = "github:NVIDIA/gdrcopy"
    releases: ClassVar[Mapping[str, str]] = RELEASES
    package: ClassVar[str] = "gdrcopy"
    prefix: ClassVar[str] = "/opt/gdrcopy"
    memory_gb: ClassVar[float] = 0.2
    cpu_minutes: ClassVar[float] = 0.1  # 2 s

    def provides(self, env: RecipeEnv) -> tuple[str, ...]:
        return ("libgdrapi",)

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(debian=("gcc", "libc6-dev", "make"), git=(self.source(),))

    def build(self, env: RecipeEnv) -> list[Any]:
        return [
            *source(self.source()),
            comment("gdrcopy: the library without its kernel module and tests"),
            shell(
                commands=[
                    f"cd {folder(self.source())}",
                    # an argument of make would override the makefile's += and remove -fPIC
                    f'CFLAGS=-g0 make lib_install prefix={self.prefix} -j "$ENVBUILD_JOBS"',
                    f"chmod 644 {self.prefix}/include/*",  # they are installed group-writable
                    tidy(self.prefix),
                ]
            ),
        ]

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(libraries=(f"{self.prefix}/lib",))

    def verify(self, env: RecipeEnv) -> list[Check]:
        program = (
            "import ctypes; major, minor = ctypes.c_int(), ctypes.c_int(); "
            "ctypes.CDLL('libgdrapi.so.2').gdr_runtime_get_version(ctypes.byref(major), ctypes.byref(minor)); "
            "print('gdrapi', major.value, minor.value)"
        )
        major, minor, *_ = (*(self.whole or self.version).split("."), "[0-9]+")
        expect = rf"^gdrapi {major} {minor}$"
        return [Check("gdrcopy: the library reports its version", f'python3 -c "{program}"', expect)]
