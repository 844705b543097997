"""PyTorch's platform to pretrain large models, with its quantization and data loading."""

from dataclasses import dataclass
from typing import ClassVar

from envbuild.sdk import Check, Recipe, RecipeEnv, Runtime, imports


@dataclass(frozen=True, kw_only=True)
class Torchtitan(Recipe):
    """TorchTitan, torchao and torchdata from the package index, beside the image's torch.

    Start it with ``torchrun … -m torchtitan.train``. TorchTitan follows torch's nightly builds; a release works with
    the torch releases of its time.

    - `version`: of TorchTitan; `ao` and `data`: of torchao and torchdata. By default the newest that are compatible.
    """

    package: ClassVar[str] = "torchtitan"
    requires: ClassVar[tuple[str, ...]] = ("torch",)

    ao: str = ""
    data: str = ""

    def runtime(self, env: RecipeEnv) -> Runtime:
        wanted = {"torchtitan": self.version, "torchao": self.ao, "torchdata": self.data}
        return Runtime(python=tuple(f"{name}=={version}" if version else name for name, version in wanted.items()))

    def verify(self, env: RecipeEnv) -> list[Check]:
        modules = ("torchtitan", "torchao", "torchdata.stateful_dataloader")
        return [
            imports("torchtitan", modules),
            imports("torchtitan: its trainer", ("torchtitan.train",)),
        ]
