"""The rdma-core and the libfabric of an image: its distribution's, or one that a layer installs in a prefix.

There is one of each in an image (`envbuild.spec.library_conflicts`), so recipes that link them read here what they may
install beside it."""

from __future__ import annotations

from envbuild.spec.recipe import RecipeEnv


def prefix(env: RecipeEnv) -> str:
    """Return the folder with lib/libibverbs.so.1 of the image's own rdma-core; "" where it is the distribution's."""
    if env.has("efa"):
        return "/opt/amazon/efa"
    return env.prefix_of("rdma-core")


def libfabric(env: RecipeEnv) -> str:
    """Return the folder of the image's own libfabric; "" where it is the distribution's."""
    return "/opt/amazon/efa" if env.has("efa") else env.prefix_of("libfabric")


def packages(env: RecipeEnv) -> tuple[str, ...]:
    """Return the Debian packages that a program linked with libibverbs and librdmacm runs with: none beside an own
    rdma-core."""
    if prefix(env):
        return ()
    return ("ibverbs-providers", "libibverbs1", env.distribution.package("librdmacm1"))
