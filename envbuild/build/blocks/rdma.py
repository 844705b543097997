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
    # DOCA-OFED has the name without the suffix on every distribution
    cm = "librdmacm1" if env.has("ofed") else env.distribution.package("librdmacm1")
    return ("ibverbs-providers", "libibverbs1", cm)


def linked_folders(env: RecipeEnv) -> tuple[str, ...]:
    """Return the folders of the image's own libfabric and the rdma-core below it, for LD_LIBRARY_PATH of a build.

    The linker follows the libraries that a library needs, and finds those of a prefix by that variable: a unit has no
    ld.so.conf. Without it every program that is linked with such a library ends in undefined references, which
    configure scripts report as a missing library. The product is the same with and without it."""
    if not libfabric(env):
        return ()
    return tuple(dict.fromkeys(f"{folder}/lib" for folder in (libfabric(env), prefix(env)) if folder))
