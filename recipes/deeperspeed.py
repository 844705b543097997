"""EleutherAI's fork of DeepSpeed."""

import re
import shlex
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from envbuild.sdk import (
    DEEPSPEED,
    DEEPSPEED_NO_GPU,
    Check,
    Git,
    OptionError,
    Recipe,
    RecipeEnv,
    Refusal,
    Runtime,
    Sources,
    cubins,
    imports,
    python_wheel,
    unknown_words,
)

OPS = {"fused_adam": "deepspeed.ops.adam.fused_adam_op", "fused_lamb": "deepspeed.ops.lamb.fused_lamb_op"}


class Revision(NamedTuple):
    """A commit and its tag, the version in its version.txt, and its requirements (requirements.txt without torch)."""

    commit: str
    version: str
    needs: tuple[str, ...]
    tag: str = ""


RESOURCES = "setuptools<82"  # torch 2.0 and older need pkg_resources to compile; setuptools 82 removed it
REVISIONS = {
    "3.0": Revision(
        "91d1c55ba037b5ada99ae14884dff87a4dc5b9ea",
        "0.16.5",
        DEEPSPEED,
        "v3.0",
    ),
    # The revision that GPT-NeoX 1.0 and LambdaLabs' branch of it require. Three requirements of its ops are in separate
    # files.
    "eb7f5cff": Revision(
        "eb7f5cff36678625d23db8a8fe78b4a93e5d2c75",
        "0.3.15",
        ("ninja", "numpy", "psutil", "tensorboardX==1.8", "tqdm"),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Deeperspeed(Recipe):
    """EleutherAI's fork, which GPT-NeoX imports under the name deepspeed.

    - `version`: ``3.0`` (DeepSpeed 0.16.5 with GPT-NeoX's changes) or ``eb7f5cff`` (0.3.15, for GPT-NeoX 1.0 and
      LambdaLabs' branch).
    - `ops`: ops to compile for the target: fused_adam, fused_lamb. The others are compiled at their first use in a
      job, with the compiler of layer torch (torch: compiler). GPT-NeoX uses apex's FusedAdam if the image has apex.
    - `commit`, `release`: another revision, and the version in its version.txt. It gets the requirements of 3.0.
    """

    wheel: ClassVar[bool] = True
    on_venv: ClassVar[bool] = True
    arch_specific: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("torch", "cuda", "nccl")
    requires: ClassVar[tuple[str, ...]] = ("torch", "cuda")
    memory_gb: ClassVar[float] = 2.5  # as DeepSpeed's

    version: str = "3.0"
    ops: tuple[str, ...] = ("fused_adam",)
    commit: str = ""
    release: str = ""

    def __post_init__(self) -> None:
        if bool(self.commit) != bool(self.release):
            raise OptionError(
                "'commit' and 'release' require each other", "write both: 'release' is the version in its version.txt"
            )

    def faults(self) -> dict[str, Refusal]:
        found = unknown_words(self.ops, OPS, "is not an op that this recipe compiles")
        if self.commit:
            return found
        other = "for another revision write commit: and release:"
        return found | unknown_words((self.version,), REVISIONS, "is not a known revision", other=other)

    @property
    def known(self) -> str:
        """Return the name in the table above; "" for a commit of the spec."""
        return "" if self.commit else self.version

    @property
    def has_accelerators(self) -> bool:
        """Return whether the revision has DeepSpeed's accelerators; for a commit of the spec that is assumed."""
        return self.known != "eb7f5cff"

    @property
    def revision(self) -> Revision:
        return Revision(self.commit, self.release, DEEPSPEED) if self.commit else REVISIONS[self.version]

    @property
    def git(self) -> Git:
        return Git(
            "deeperspeed",
            "github:EleutherAI/DeeperSpeed",
            self.revision.commit,
            self.revision.tag,
            submodules=False,
            left_out="DeepSpeedExamples are not part of the package",
        )

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        found = []
        if env.has("deepspeed"):
            found.append(Refusal("layer 'deepspeed' has the same Python package", "remove one of the two"))
        if not env.has_nvcc:
            why = "jobs compile its other ops with nvcc, and the layer cuda of this image has flavor: runtime"
            found.append(Refusal(why, "write cuda: {flavor: devel}"))
        # The matrix has no releases of the fork.
        release = re.match(r"(\d+)\.(\d+)", env.recipes["torch"].version)
        torch = (int(release[1]), int(release[2])) if release else (0, 0)
        if self.known == "eb7f5cff" and torch >= (2, 0):
            found.append(
                Refusal("it imports torch._six, which torch 2.0 removed", "take torch 1.13 or older, or version 3.0")
            )
        if self.known == "3.0" and self.ops and torch >= (2, 14):
            found.append(
                Refusal(
                    "it compiles its ops as C++17, which the headers of torch 2.14 reject",
                    "take an older torch, or ops: []",
                )
            )
        return tuple(found)

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(
            debian=("g++", "gcc", "libc6-dev", "python3-dev"),
            # setup.py imports the op builders, and with them DeepSpeed's own requirements
            python=(RESOURCES, "wheel", *self.revision.needs),
            git=(self.git,),
            gives=(f"deepspeed=={self.revision.version}",),
        )

    def build(self, env: RecipeEnv) -> list[Any]:
        before = [": > build.txt"]  # else the version ends in git's hash, or in "unknown"
        if self.has_accelerators:
            # a commit of the spec may not have the line: sed then changes nothing
            before.append(f"sed -E -i {shlex.quote(DEEPSPEED_NO_GPU)} accelerator/cuda_accelerator.py")
        return python_wheel(
            "deeperspeed",
            git=self.git,
            before=before,
            environment={
                "CUDA_HOME": "/opt/cuda",
                "DS_ACCELERATOR": "cuda",  # see recipe deepspeed
                "DS_BUILD_OPS": "0",
                **{f"DS_BUILD_{op.upper()}": "1" for op in self.ops},
                "TORCH_CUDA_ARCH_LIST": env.target.cuda_arch_list,
                "MAX_JOBS": "$ENVBUILD_JOBS",
            },
        )

    def runtime(self, env: RecipeEnv) -> Runtime:
        # setup.py requires it where the accelerator is cuda, as here; free memory of a GPU is read with it
        nvml = ("nvidia-ml-py",) if self.has_accelerators else ()
        return Runtime(python=(*self.revision.needs, *nvml, RESOURCES))

    def extensions(self) -> tuple[str, ...]:
        return tuple(OPS[op] for op in self.ops)

    def verify(self, env: RecipeEnv) -> list[Check]:
        expect = self.revision.version.replace(".", r"\.")
        modules = ("deepspeed", *(("pynvml",) if self.has_accelerators else ()))
        checks = [imports("deeperspeed", modules, show="deepspeed.__version__", expect=rf"^{expect}$")]
        if self.ops:
            checks += [imports("deeperspeed ops", self.extensions()), cubins("deeperspeed", self.extensions(), env)]
        return checks
