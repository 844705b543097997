"""MLNX_OFED and DOCA-OFED: NVIDIA's own build of the InfiniBand user space."""

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

from envbuild.sdk import AptRepository, Check, Recipe, RecipeEnv, Refusal, Runtime, Sources

# Names of distributions and CPU architectures in the vendor's two archives, and of the key file in their folders.
DISTRIBUTIONS = {"ubuntu:20.04": "ubuntu20.04", "ubuntu:22.04": "ubuntu22.04", "ubuntu:24.04": "ubuntu24.04"}
ARCHITECTURES = {
    "doca": {"amd64": "x86_64", "arm64": "arm64-sbsa"},
    "mlnx-ofed": {"amd64": "x86_64", "arm64": "aarch64"},
}
# Key of provider doca and its file in each folder: "NVIDIA DOCA Host", with which NVIDIA signed all versions again in
# January 2026 (Azure/AgentBaker#9256, #9394, which verified the archive's InRelease with it). GPG-KEY-Mellanox.pub
# beside it has the three keys before that one. No document read here states the fingerprint of MLNX_OFED's key.
KEY, KEY_FILES = "70454E6BF5D9C2D3B78709E8DC726C5E41B9CC50", {"doca": "doca_keyring.gpg", "mlnx-ofed": ""}
VERSIONS = {"doca": r"[0-9]+\.[0-9]+\.[0-9]+", "mlnx-ofed": r"[0-9]+\.[0-9]+-[0-9]+(\.[0-9]+){3}"}
EXAMPLES = {"doca": "3.2.1", "mlnx-ofed": "23.07-0.5.1.2"}
PACKAGES = ("ibverbs-providers", "ibverbs-utils", "libibumad3", "libibverbs1", "librdmacm1", "rdmacm-utils")
# Ubuntu 24.04 renamed its librdmacm1 (64-bit time_t); its libfabric1 and libucx0 depend on the new name. The vendor's
# has the old one, as in debian/control of rdma-core, and both contain librdmacm.so.1. The version is Ubuntu's: the
# vendor's rdma-core for this release was never older.
RENAMED = {"librdmacm1t64": "50.0"}
# Packages of the distribution that are linked with libefa.so.1, Open MPI through libfabric (readelf -d). Its package
# ibverbs-providers contains it; NVIDIA's of the same name has the provider mlx5 alone.
LIBEFA = {"openmpi": "Open MPI", "perftest": "perftest"}
# 2307mlnx47-1.2307050, 2507mlnx58-1.2507097, 2510.0.11-1: year and month of the release. Ubuntu has 28.0, 39.0, 50.0.
OWN_VERSION = r"(?:\d+mlnx|\d{4}\.)\S+"


@dataclass(frozen=True, kw_only=True)
class Ofed(Recipe):
    """User space of DOCA-OFED or MLNX_OFED, from NVIDIA's apt repository of that version.

    - `provider`: ``doca`` (with a `version` such as 3.2.1) or its predecessor ``mlnx-ofed`` (23.07-0.5.1.2).
    - `key`: fingerprint of the key that signs the repository: with doca by default NVIDIA's key of 2026, which signs
      every version; required with mlnx-ofed, because no public document that this recipe is based on states it.

    The packages have the names of the distribution's (libibverbs1, ibverbs-providers, …) and higher versions, so they
    replace them for everything in the image that links libibverbs. On Ubuntu 24.04 they take the place of librdmacm1t64
    too, on which packages of the distribution depend. Layer rdma-core is refused beside them. Kernel modules, firmware
    and services belong to the host; mlnxofedinstall is not run.
    """

    package: ClassVar[str] = "libibverbs1"

    provider: Literal["doca", "mlnx-ofed"] = "doca"
    key: str = ""

    # a key of the spec signs the repository of one version, so none is picked for it
    @property
    def component(self) -> str:
        if self.key and not self.version:
            return ""
        return "doca" if self.provider == "doca" else "ofed"

    def faults(self) -> dict[str, Refusal]:
        found = {}
        if self.key and not re.fullmatch(r"[0-9A-Fa-f]{40}", self.key):
            found[self.key] = Refusal("is not the fingerprint of a key: 40 hex digits")
        if self.version and not re.fullmatch(VERSIONS[self.provider], self.version):
            found[self.version] = Refusal(
                f"is not a full version of {self.provider}, such as {EXAMPLES[self.provider]}"
            )
        return found

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        if env.distribution.name not in DISTRIBUTIONS:
            why = f"no repository of {self.provider} for {env.distribution.name} is known"
            return (Refusal(f"{why}, only for {', '.join(DISTRIBUTIONS)}", "use layer rdma-core"),)
        if not self.signed_by:
            how = "gpg --show-keys prints it for the key file beside NVIDIA's repository"
            return (Refusal("the key that signs the repository is not known", f"write key: FINGERPRINT ({how})"),)
        if self.key and not self.version:
            hint = f"write version: {EXAMPLES[self.provider]}, or another"
            return (Refusal("a key signs the repository of one version, and the spec states none", hint),)
        return self._beside(env)

    def _beside(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        """Return the layers whose packages of the distribution need its own ibverbs-providers."""
        why = "the {} of {} requires libefa, which is in its ibverbs-providers and not in NVIDIA's"
        return tuple(
            Refusal(why.format(title, env.distribution.name), f"write {name}: {{provider: source}}")
            for name, title in LIBEFA.items()
            if env.has(name) and env.recipes[name].package in ("openmpi-bin", "perftest")
        )

    @property
    def signed_by(self) -> str:
        """Return the fingerprint of the key that signs the repository; "" if it is not known."""
        return self.key.upper() or (KEY if self.provider == "doca" else "")

    def provides(self, env: RecipeEnv) -> tuple[str, ...]:
        return ("libibverbs", "librdmacm")

    def sources(self, env: RecipeEnv) -> Sources:
        folder = f"{DISTRIBUTIONS[env.distribution.name]}/{ARCHITECTURES[self.provider][env.target.arch]}"
        origin = f"apt:nvidia-{self.provider}/{self.version}/{folder}"
        return Sources(repositories=(AptRepository(origin, "./", (), self.signed_by, KEY_FILES[self.provider]),))

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(debian=PACKAGES, replaces=RENAMED if env.distribution.t64 else {})

    def verify(self, env: RecipeEnv) -> list[Check]:
        program = (
            "import ctypes, glob; verbs = ctypes.CDLL('libibverbs.so.1'); "
            "print('verbs', bool(verbs.ibv_get_device_list)); "
            "[ctypes.CDLL(path) for path in glob.glob('/usr/lib/*/libibverbs/libmlx5-rdmav*.so')] and print('mlx5')"
        )
        modules = "find /lib/modules /usr/src -name 'mlx*' -o -name 'ofa_kernel*' 2>/dev/null | head -5"
        versions = f"dpkg-query -W -f '${{Version}}\\n' {' '.join(PACKAGES)}"
        return [
            Check(
                "ofed: the packages are the vendor's, none the distribution's", versions, rf"\A(?:{OWN_VERSION}\n?)+\Z"
            ),
            Check("ofed: libibverbs and its mlx5 provider load", f'python3 -c "{program}"', r"verbs True\nmlx5"),
            Check("ofed: user space only, no kernel modules", f'test -z "$({modules})" && echo none', "^none$"),
        ]
