"""NVIDIA's library for deep neural networks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from envbuild.sdk import VENV, AptRepository, Check, Recipe, RecipeEnv, Refusal, Runtime, Sources, comment, shell

BASE_HEADER, BASE_LIBRARY = "/usr/include/*/cudnn_version*.h", "/usr/lib/*/libcudnn.so.*"


@dataclass(frozen=True, kw_only=True)
class Cudnn(Recipe):
    """cuDNN with its headers.

    - `provider`: ``wheel`` of the package index, the one that torch pins; ``apt``, NVIDIA's archive, into /opt/cudnn;
      or ``base``, that of the base image.
    - `cuda`: major version of CUDA that the wheel or the packages are for, as in their names.

    An image with torch from the index does not need this layer, because torch's wheel requires its cuDNN. Add it for a
    certain version, or for the headers.
    """

    prefix: ClassVar[str] = "/opt/cudnn"
    after: ClassVar[tuple[str, ...]] = ("cuda",)

    provider: Literal["wheel", "apt", "base"] = "wheel"
    cuda: Literal["11", "12", "13"] = "13"

    # the matrix checks the cuDNN of a base image only if the spec states its version
    @property
    def component(self) -> str:
        return "" if self.provider == "base" and not self.version else "cudnn"

    @property
    def package(self) -> str:
        return f"nvidia-cudnn-cu{self.cuda}" if self.provider == "wheel" else ""

    @property
    def builds(self) -> bool:
        return self.provider == "apt"

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        if self.provider == "base" and not env.on_image:
            why = f"'provider: base' requires a base image with cuDNN, and {env.base} is a distribution"
            return (Refusal(why, "take provider: wheel or apt, or an image as base"),)
        cuda = env.recipes.get("cuda")
        major = cuda.version.partition(".")[0] if cuda else ""
        if self.provider != "base" and major and major != self.cuda:
            return (
                Refusal(
                    f"the image has CUDA {cuda.version} and this cuDNN is for CUDA {self.cuda}",
                    f"write cuda: '{major}'",
                ),
            )
        if self.provider == "apt" and getattr(cuda, "provider", "") != "apt":
            why = "layer 'cuda' configures NVIDIA's archive, and its provider is not apt"
            return (Refusal(why, "write cuda: {provider: apt}, or take provider: wheel"),)
        return ()

    def provides(self, env: RecipeEnv) -> tuple[str, ...]:
        return ("libcudnn",)

    def promised(self, env: RecipeEnv) -> tuple[str, ...]:
        return (BASE_HEADER, BASE_LIBRARY) if self.provider == "base" else ()

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        return {**super().matrix(env), **({"torch-cuda": self.cuda} if self.provider == "wheel" else {})}

    def names(self) -> tuple[str, str]:
        """Return the two packages of NVIDIA's archive.

        Since 9 their names contain the CUDA version, before that their versions did (Dockerfiles of nvidia/cuda,
        "cudnn").
        """
        major = self.version.partition(".")[0] or "9"
        if int(major) < 9:
            return f"libcudnn{major}", f"libcudnn{major}-dev"
        return f"libcudnn{major}-cuda-{self.cuda}", f"libcudnn{major}-dev-cuda-{self.cuda}"

    def sources(self, env: RecipeEnv) -> Sources:
        if self.provider != "apt":
            return Sources()
        repositories: tuple[AptRepository, ...] = env.recipes["cuda"].sources(env).repositories
        return Sources(debian=self.names(), repositories=repositories)

    def build(self, env: RecipeEnv) -> list[Any]:
        return [
            comment("cudnn: headers and shared libraries, moved"),
            shell(
                commands=[
                    f"mkdir -p {self.prefix}/include {self.prefix}/lib",
                    # cudnn.h and libcudnn.so are links through /etc/alternatives: copy the contents, make new links
                    f"cp -L /usr/include/*/cudnn*.h {self.prefix}/include/",
                    f"cp -a /usr/lib/*/libcudnn*.so.* {self.prefix}/lib/",
                    f"for library in {self.prefix}/lib/libcudnn*.so.[0-9]; do "
                    'ln -s "${library##*/}" "${library%.so.*}.so"; done',
                    f"test -e {self.prefix}/include/cudnn.h -a -e {self.prefix}/lib/libcudnn.so",
                ]
            ),
        ]

    def runtime(self, env: RecipeEnv) -> Runtime:
        if self.provider == "wheel":
            return Runtime(core=(f"{self.package}=={self.version}.*" if self.version else self.package,))
        return Runtime(libraries=(f"{self.prefix}/lib",) if self.provider == "apt" else ())

    def verify(self, env: RecipeEnv) -> list[Check]:
        python = f"{VENV}/bin/python" if self.provider == "wheel" else "python3"
        if self.provider == "wheel":
            library = f"glob.glob('{env.site_packages}/nvidia/cudnn/lib/libcudnn.so.*')[0]"
        elif self.provider == "apt":
            library = f"glob.glob('{self.prefix}/lib/libcudnn.so.*')[0]"
        else:
            library = f"glob.glob('{BASE_LIBRARY}')[0]"
        program = (
            "import ctypes, glob; version = ctypes.CDLL(" + library + ").cudnnGetVersion; "
            "version.restype = ctypes.c_size_t; n = version(); step = 10000 if n >= 90000 else 1000; "
            "print('cudnn', '.'.join(map(str, (n // step, n % step // 100, n % 100))))"
        )
        wanted = env.versions.get(self.package, "") or self.version
        number = r"\.".join(wanted.split(".")[:3]) if wanted else "[0-9]+"
        return [Check("cudnn: the library reports its version", f'{python} -c "{program}"', rf"^cudnn {number}\b")]
