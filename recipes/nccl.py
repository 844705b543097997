"""NVIDIA's library of collectives between GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from envbuild.sdk import (
    VENV,
    Check,
    OptionError,
    Recipe,
    RecipeEnv,
    Refusal,
    Released,
    Runtime,
    Sources,
    comment,
    folder,
    shell,
    source,
    tidy,
)

# Tags of NVIDIA/nccl, without the "-1" that each ends with.
RELEASES = {
    "2.30.7": "73cf112295c33aee2b895f329f592f2a9b4b0f97",
    "2.30.4": "1933fdd6360a8bfccaa0166bd71bce363d32e5b6",
    "2.30.3": "6da422082f910a8dd230f7e42e26ece4dc37bccc",
    "2.29.7": "b91894bd5b190c874d98a017f93f5daa515b65d0",
    "2.29.3": "25368a7f78bae866f29e46938af94fa586c84484",
    "2.29.2": "ebd1e929285881cb4df02c3459588a2e12b2d8c0",
    "2.28.9": "dbc86fd06e8b0c4517b95d8958a09ccacf9520c9",
    "2.28.7": "ae7aed194dc63c65d1bf5c0385ba3d68d3b64c8c",
    "2.28.3": "f1308997d0420148b1be1c24d63f19d902ae589b",
    "2.27.7": "593de54e52679b51428571c13271e2ea9f91b1b1",
    "2.27.6": "7c12c627c62ef4e5a2485777a8d9dce58f3f562f",
    "2.27.5": "3ea7eedf3b9b94f1d9f99f4e55536dfcbd23c1ca",
    "2.27.3": "72d2432094d6ae36abd6e511c3a16a2d052dbf94",
    "2.26.6": "8171af656bb3c47c8fc60b7cd49ae0c7494de664",
    "2.26.5": "3000e3c797b4b236221188c07aa09c1f3a0170d4",
    "2.26.2": "f44ac759fee12ecb3cc6891e9e739a000f66fd70",
    "2.25.1": "80f6bda4378b99d99e82b4d76a633791cc45fef0",
    "2.24.3": "6aae37927840b2bd7b7d42d2f0050e75f88ee97f",
    "2.23.4": "68b542363f9a44cdaac480f51ebe0fc26de96139",
    "2.22.3": "178b6b759074597777ce13438efb0e0ba625e429",
    "2.21.5": "ab2b89c4c339bd7f816fbc114a4b05d386b66290",
    "2.20.5": "48bb7fec7953112ff37499a272317f6663f8f600",
    "2.20.3": "b6475625fbcaa2c3c0e50eed2fa1255d7514d4a2",
    "2.19.4": "88d44d777f6970bdbf6610badcbd7e25a05380f0",
    "2.19.3": "8c6c5951854a57ba90c4424fa040497f6defac46",
    "2.19.1": "f9c3dc251e0fd3144341b4f43336c53dd913c110",
    "2.18.6": "0b083e52096c387bad7a5c5c65b26a9dca54de8c",
    "2.18.5": "559b70f86c190a0d8f67f0d7a0f2c9810dd1e8c7",
    "2.18.3": "ea38312273e5b9a19a224c9ff4c10b7fcf441eaf",
    "2.18.1": "d97a32fac84f69cbd022ffdc57d5687c760742c7",
    "2.17.1": "5d3ab08b69754cb863ab1bf6e3fb6f7612bb725b",
    "2.16.5": "f3d51667838f7542df8ea32ea4e144d812b3ed7c",
    "2.16.2": "28189e2df85885b78bf20384cefc3cedab023bf5",
    "2.15.5": "cb111f764a6d46370f24f75101d6b219bb2dda54",
    "2.14.3": "c4e2aa6c792b4e94d0343c72ce20e71285238827",
    "2.12.12": "7aa1c46fd551d5514474cfc55848219dc67ca683",
    "2.10.3": "7e515921295adaab72adf56ea71a0fafb0ecb5f3",
}
# Python: the version that torch is compiled for, which torch.cuda.nccl reports, and that of the library that it loads.
NUMBERS = "'.'.join(map(str, {}))"
COMPILED = "import ctypes, torch; compiled = " + NUMBERS.format("torch.cuda.nccl.version()[:3]")
LOADED = (
    "n = ctypes.c_int(); ctypes.CDLL('libnccl.so.2').ncclGetVersion(ctypes.byref(n)); "
    "print(compiled, " + NUMBERS.format("(n.value // 10000, n.value // 100 % 100, n.value % 100)") + ")"
)
# Its paths in NVIDIA's images and packages.
BASE_HEADER, BASE_LIBRARY = "/usr/include/nccl.h", "/usr/lib/*/libnccl.so.2"


@dataclass(frozen=True, kw_only=True)
class Nccl(Released):
    """NCCL in /opt/nccl (include and lib), the only libnccl of the image: a second one would shadow it.

    - `provider`: ``wheel``, the one that torch pins; ``source``, NVIDIA's repository, compiled for the target's GPU
      alone; or ``base``, that of the base image.
    - `version`: for a wheel by default that which torch requires.
    - `commit`: full hash of a `version` that this recipe does not know (``provider: source``).
    - `cuda`: major version of CUDA that the wheel and torch are for, as in the wheel's name.
    """

    upstream: ClassVar[str] = "NCCL"
    repository: ClassVar[str] = "github:NVIDIA/nccl"
    releases: ClassVar[Mapping[str, str]] = RELEASES
    tag: ClassVar[str] = "v{}-1"
    prefix: ClassVar[str] = "/opt/nccl"

    provider: Literal["wheel", "source", "base"] = "wheel"
    cuda: Literal["11", "12", "13"] = "13"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.commit and self.provider != "source":
            hint = "write provider: source, or remove commit:"
            raise OptionError(f"'commit' is for provider: source, not for {self.provider}", hint)

    # the matrix checks the NCCL of a base image only if the spec states its version
    @property
    def component(self) -> str:
        return "" if self.provider == "base" and not self.version else "nccl"

    @property
    def package(self) -> str:
        return f"nvidia-nccl-cu{self.cuda}" if self.provider == "wheel" else ""

    @property
    def after(self) -> tuple[str, ...]:
        return () if self.provider == "base" else ("cuda",)

    @property
    def on_toolkit(self) -> bool:
        return self.provider != "base"  # for the wheel, and for nvcc if cuda comes from wheels

    @property
    def arch_specific(self) -> bool:
        return self.provider == "source"

    @property
    def meets(self) -> tuple[str, ...]:
        # the build sets NVCC_GENCODE
        return ("nccl.default-gencode", "nccl.build-cuda") if self.provider == "source" else ()

    @property
    def memory_gb(self) -> float:
        return 1.5 if self.provider == "source" else 0.5

    @property
    def cpu_minutes(self) -> float:
        return 40.0 if self.provider == "source" else 0.0

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        if self.provider == "base":
            why = f"'provider: base' requires a base image with NCCL, and {env.base} is a distribution"
            return () if env.on_image else (Refusal(why, "take provider: wheel or source, or an image as base"),)
        cuda, torch = env.recipes.get("cuda"), env.recipes.get("torch")
        if self.provider == "source":
            reasons = self.lacking()
            if cuda is None:
                reasons += (
                    Refusal("it is compiled with a CUDA toolkit, and this image has none", "add cuda to the layers"),
                )
            if torch and not torch.builds:
                # libtorch_cuda.so of the wheel has an RPATH to nvidia/nccl/lib of its venv, and requires that package
                why = "a torch that was compiled elsewhere always loads its own NCCL"
                reasons += (Refusal(why, "take provider: wheel (or base), or a torch that is compiled here"),)
            return reasons
        major = cuda.version.partition(".")[0] if cuda else ""
        if major and major != self.cuda:
            return (
                Refusal(
                    f"the image has CUDA {cuda.version} and this wheel is for CUDA {self.cuda}",
                    f"write cuda: '{major}'",
                ),
            )
        return ()

    def provides(self, env: RecipeEnv) -> tuple[str, ...]:
        return ("libnccl",)

    def promised(self, env: RecipeEnv) -> tuple[str, ...]:
        return (BASE_HEADER, BASE_LIBRARY) if self.provider == "base" else ()

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        # a torch of the image loads the wheel, which then is for its CUDA
        with_torch = self.provider == "wheel" and env.has("torch")
        return {**super().matrix(env), **({"torch-cuda": self.cuda} if with_torch else {})}

    def sources(self, env: RecipeEnv) -> Sources:
        if self.provider != "source":
            return Sources()
        return Sources(debian=("g++", "gcc", "libc6-dev", "make"), git=(self.source(),))

    def runtime(self, env: RecipeEnv) -> Runtime:
        wheel: tuple[str, ...] = ()
        if self.provider == "wheel":
            wheel = (f"{self.package}=={self.version}" if self.version else self.package,)
        # on the loader's path, so that UCC and NCCL's tests find the same file without torch in the process
        return Runtime(toolkit=wheel, libraries=() if self.provider == "base" else (f"{self.prefix}/lib",))

    def build(self, env: RecipeEnv) -> list[Any]:
        include, libraries = f"{self.prefix}/include", f"{self.prefix}/lib"
        if self.provider == "source":
            revision = f"NCCL_GIT_BRANCH={self.source().tag or 'none'} NCCL_GIT_COMMIT_HASH={self.source().commit[:7]}"
            return [
                *source(self.source()),
                comment("nccl: compiled for one GPU"),
                shell(
                    commands=[
                        f"cd {folder(self.source())}",
                        # the shared library alone: src.build also builds a static one of the same size
                        f'make -j "$ENVBUILD_JOBS" src.lib CUDA_HOME=/opt/cuda NVCC_GENCODE={env.target.gencode} '
                        f"{revision}",
                        f"mkdir -p {self.prefix}",
                        f"cp -a build/include build/lib {self.prefix}/",
                        tidy(self.prefix),
                    ]
                ),
            ]
        if self.provider == "base":
            where = ["/usr/include/nccl*", BASE_LIBRARY]
        else:
            wheel = f"{env.site_packages}/nvidia/nccl"
            where = [f"{wheel}/include/nccl*", f"{wheel}/lib/libnccl.so.2"]
        return [
            comment("nccl: include and lib, as links"),
            shell(
                commands=[
                    f"mkdir -p {include} {libraries}",
                    f"ln -s {where[0]} {include}/",
                    f"ln -s {where[1]} {libraries}/",
                    f"ln -s libnccl.so.2 {libraries}/libnccl.so",
                    f"test -e {include}/nccl.h -a -e {libraries}/libnccl.so",
                ]
            ),
        ]

    def verify(self, env: RecipeEnv) -> list[Check]:
        program = (
            "import ctypes; n = ctypes.c_int(); "
            f"ctypes.CDLL('{self.prefix}/lib/libnccl.so.2').ncclGetVersion(ctypes.byref(n)); "
            "print('.'.join(map(str, (n.value // 10000, n.value // 100 % 100, n.value % 100))))"
        )
        expect = env.versions.get(self.package, "") or self.whole or self.version
        python = f"{VENV}/bin/python" if self.provider == "wheel" else "python3"
        number = expect.replace(".", r"\.") if self.provider != "base" or self.version else r"[0-9.]+"
        checks = [Check("nccl: the library reports the locked version", f'{python} -c "{program}"', rf"^{number}$")]
        if self.serves(env.recipes.get("torch")):
            twice = r"^(\S+) \1$" if self.provider == "base" else rf"^{number} {number}$"
            checks.append(
                Check(
                    "nccl: torch is compiled for the locked version and loads it",
                    f'{VENV}/bin/python -c "{COMPILED}; {LOADED}"',
                    twice,
                )
            )
        return checks

    def serves(self, torch: Recipe | None) -> bool:
        """Return whether the torch of the image loads this NCCL.

        Wheels for CUDA 11 of PyTorch's own index have one inside themselves and use no other, as those before 2.0.
        """
        if torch is None:
            return False
        source, channel = getattr(torch, "provider", ""), getattr(torch, "channel", "")
        if self.provider != "wheel":
            return source == self.provider
        old = torch.version.partition(".")[0] == "1"
        return not old and (source == "index" or (source == "vendor" and channel >= "cu12"))
