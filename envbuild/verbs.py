"""Which rdma-core an image has: its distribution's, or one that a layer brings in a prefix.

Two copies in one process break the providers (their private symbols differ: IBVERBS_PRIVATE_34 against _59,
NVIDIA-NeMo/Megatron-Bridge#2824), so recipes that link libibverbs ask here what they may put beside it."""

from __future__ import annotations

from envbuild.recipe import RecipeEnv

# Packages of Debian and Ubuntu that depend on libibverbs1 and that recipes install by name.
DEPENDENTS = (
    "ibverbs-providers",
    "ibverbs-utils",
    "infiniband-diags",
    "libfabric-bin",
    "libfabric1",
    "libibverbs1",
    "libopenmpi40",
    "librdmacm1",
    "librdmacm1t64",
    "libucx0",
    "openmpi-bin",
    "perftest",
    "rdmacm-utils",
    "ucx-utils",
)


def prefix(env: RecipeEnv) -> str:
    """The folder with lib/libibverbs.so.1 of the image's own rdma-core; "" where it is the distribution's."""
    if env.has("efa"):
        return "/opt/amazon/efa"
    core = env.recipes.get("rdma-core")
    return "/opt/rdma-core" if core and core.builds else ""


def packages(env: RecipeEnv) -> tuple[str, ...]:
    """Debian packages that a program linked with libibverbs and librdmacm runs with: none beside an own rdma-core."""
    if prefix(env):
        return ()
    return ("ibverbs-providers", "libibverbs1", env.distribution.package("librdmacm1"))


def second_copies(env: RecipeEnv, own: str) -> tuple[str, ...]:
    """The refusal of layers whose Debian packages bring the distribution's libibverbs beside that of layer `own`."""
    found = {
        name: taken
        for name, recipe in env.recipes.items()
        if name != own and (taken := sorted(set(recipe.runtime(env).debian) & set(DEPENDENTS)))
    }
    return tuple(
        f"layer '{name}' installs {', '.join(taken)}, which bring the libibverbs of {env.distribution.name} beside its "
        f"own; compile '{name}' from source (provider: source) or leave it out"
        for name, taken in found.items()
    )
