"""PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from envbuild.recipe import VENV, Check, Recipe, RecipeEnv, Runtime


@dataclass(frozen=True, kw_only=True)
class Torch(Recipe):
    """The index's own wheel with the CUDA libraries that it pins. `version`: ``2.15`` takes the newest patch of it."""

    package: ClassVar[str] = "torch"
    component: ClassVar[str] = "torch"

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        return {**super().matrix(env), "channel": "index"}

    def runtime(self, env: RecipeEnv) -> Runtime:
        wanted = f"=={self.version}{'.*' if self.version.count('.') < 2 else ''}" if self.version else ""
        locked = env.versions.get("torch", "")
        # pyxis and enroot's hook set the rendezvous variables only for images that say which PyTorch they hold
        return Runtime(core=(f"torch{wanted}",), env={"PYTORCH_VERSION": locked} if locked else {})

    def verify(self, env: RecipeEnv) -> list[Check]:
        program = (
            "import torch; print(torch.__version__, torch.distributed.is_nccl_available()); "
            "print(torch.ones(3).sum().item())"
        )
        gloo = (
            "import torch, torch.distributed as d; d.init_process_group('gloo'); t = torch.ones(4); d.all_reduce(t); "
            "print('sum', int(t.sum())); d.destroy_process_group()"
        )
        launch = f"{VENV}/bin/torchrun --standalone --nproc-per-node 2 /tmp/gloo.py"
        return [
            Check("torch: imports", f'{VENV}/bin/python -c "{program}"', r"True\n3\.0"),
            Check(
                "torch: two-rank all-reduce over gloo",
                f"cat > /tmp/gloo.py <<'END'\n{gloo}\nEND\n{launch}",
                r"sum 8\n(?s:.*)sum 8",
            ),
        ]
