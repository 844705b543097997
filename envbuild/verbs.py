"""Which rdma-core an image has: its distribution's, or one that a layer brings in a prefix.

There is one in an image (`envbuild.copies`), so recipes that link libibverbs ask here what they may put beside it."""

from __future__ import annotations

from envbuild.recipe import RecipeEnv


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
