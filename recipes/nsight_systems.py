"""Command line programs of NVIDIA's profiler Nsight Systems."""

import re
from dataclasses import dataclass
from typing import ClassVar

from envbuild.sdk import AptRepository, Check, Recipe, RecipeEnv, Refusal, Runtime, Sources

# Folders of NVIDIA's archive for developer tools; it has none for Debian.
DISTRIBUTIONS = {"ubuntu:20.04": "ubuntu2004", "ubuntu:22.04": "ubuntu2204", "ubuntu:24.04": "ubuntu2404"}
# The key that its installation guide names (7fa2af80.pub), by its fingerprint in NVIDIA's Dockerfiles.
KEY = "AE09FE4BBD223A84B2CCFCE3F60F4B3D7FA2AF80"
KEY_FILE = "nvidia.pub"


@dataclass(frozen=True, kw_only=True)
class NsightSystems(Recipe):
    """nsys from NVIDIA's archive of developer tools, without the graphical programs, which show traces.

    - `version`: its year and number (2025.3.2). Default: the newest.
    - `key`: fingerprint of the key that signs the archive, if it is not the known one.
    """

    package: ClassVar[str] = "nsight-systems-cli"

    key: str = ""

    def faults(self) -> dict[str, Refusal]:
        wrong = self.key and not re.fullmatch(r"[0-9A-Fa-f]{40}", self.key)
        return {self.key: Refusal("is not the fingerprint of a key: 40 hex digits")} if wrong else {}

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        if env.distribution.name in DISTRIBUTIONS:
            return ()
        why = f"NVIDIA's archive of developer tools has no folder for {env.distribution.name}"
        return (Refusal(why, f"take one of these as base: {', '.join(DISTRIBUTIONS)}"),)

    def sources(self, env: RecipeEnv) -> Sources:
        origin = f"apt:nvidia-devtools/{DISTRIBUTIONS[env.distribution.name]}/{env.target.arch}"
        return Sources(repositories=(AptRepository(origin, "./", (), (self.key or KEY).upper(), KEY_FILE),))

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(debian=(f"{self.package}-{self.version}" if self.version else self.package,))

    def verify(self, env: RecipeEnv) -> list[Check]:
        return [Check("nsight-systems: prints its version", "nsys --version", rf"version {re.escape(self.version)}")]
