"""NeuronX Distributed, and NxD Training on top of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from envbuild.sdk import PYTHON, Check, Recipe, RecipeEnv, Refusal, Runtime

# What `import neuronx_distributed` imports (trainer/checkpoint_storage.py and others of v2.28.0). Its setup.py lists
# only the last two; upstream's image has the others with awscli and sagemaker.
IMPORTED = ("boto3", "packaging", "requests", "safetensors", "tenacity")
MODULE = "neuronx_distributed"


@dataclass(frozen=True, kw_only=True)
class NeuronxDistributed(Recipe):
    """Tensor, pipeline and data parallel training on Trainium: neuronx-distributed of the SDK of layer neuron.

    `training` adds NxD Training (neuronx-distributed-training) of the same release. It trains with megatron-lm 0.10.0,
    a Python-only apex and a modified NeMo 2.1.0, as upstream's image installs them. Of these only megatron-lm has a
    recipe.
    """

    requires: ClassVar[tuple[str, ...]] = ("neuron",)
    after: ClassVar[tuple[str, ...]] = ("neuron",)

    training: bool = False

    def versions(self, env: RecipeEnv) -> dict[str, str]:
        """Return package → version, of the image's SDK."""
        release = getattr(env.recipes["neuron"], "release", None)
        found = {"neuronx-distributed": getattr(release, "distributed", "")}
        if self.training:
            found["neuronx-distributed-training"] = getattr(release, "training", "")
        return found

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        sdk = getattr(env.recipes["neuron"], "sdk", "")
        missing = [name for name, version in self.versions(env).items() if not version]
        return tuple(Refusal(f"the SDK {sdk} has no {name}", "take a later sdk of neuron") for name in missing)

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        return {"nxdt": f"=={self.versions(env)['neuronx-distributed-training']}"} if self.training else {}

    def runtime(self, env: RecipeEnv) -> Runtime:
        wanted = (f"{name}=={version}" for name, version in self.versions(env).items())
        return Runtime(python=(*wanted, *IMPORTED))

    def verify(self, env: RecipeEnv) -> list[Check]:
        names = tuple(self.versions(env))
        program = f"import importlib.metadata as m; print(*(m.version(n) for n in {names}))"
        expect = " ".join(version.replace(".", r"\.").replace("+", r"\+") for version in self.versions(env).values())
        needed = f"import {', '.join(IMPORTED)}; from importlib.util import find_spec as f; print(bool(f('{MODULE}')))"
        whole = f"import {MODULE}.parallel_layers as p; print(p.ColumnParallelLinear.__name__)"
        return [
            Check("neuronx-distributed: of the SDK", f'{PYTHON} -c "{program}"', rf"^{expect}$"),
            Check("neuronx-distributed: what it imports is there", f'{PYTHON} -c "{needed}"', "^True$"),
            # it reads the kind of the accelerator when it is imported (modules/moe/model_utils.py)
            Check("neuronx-distributed: imports", f'{PYTHON} -c "{whole}"', "ColumnParallelLinear", tier="gpu"),
        ]
