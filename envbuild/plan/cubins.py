"""The verify line for CUDA code in libraries and programs outside of the venv."""

from __future__ import annotations

from collections.abc import Sequence

from envbuild.plan.checks import CUOBJDUMP, cubins_alone
from envbuild.recipe import Check, RecipeEnv


def only_this_gpu(name: str, files: Sequence[str], env: RecipeEnv) -> Check:
    """That each of `files` (paths; patterns of the shell) holds machine code for the target's GPU, and none of them
    such code for another one or PTX. `name` is whose they are."""
    each = f'echo "$file"; {CUOBJDUMP} --list-elf "$file" || exit 1; {CUOBJDUMP} --list-ptx "$file" 2>/dev/null'
    return Check(
        f"{name}: code for sm_{env.target.sm_arch} and nothing else",
        # a pattern that matches nothing stays as it is, and cuobjdump fails
        f"for file in {' '.join(files)}; do {each}; done; true",
        cubins_alone(env.target.sm_arch),
    )
