"""The OCI config of an image: its environment and its labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbuild.build.plan.units import SYSTEM_PATH
from envbuild.oci.config import ImageConfig
from envbuild.spec.recipe import VENV, RecipeEnv, Runtime
from envbuild.spec.recipe_calls import call_recipe

if TYPE_CHECKING:
    from envbuild.lock.model import Lock
    from envbuild.spec.resolve import Resolution


def recipe_env(resolution: Resolution, lock: Lock) -> RecipeEnv:
    """Return what recipes may know once there is a lock: versions by package name."""
    versions = {file.name: file.version for file in lock.debian.values()}
    versions |= {file.name: file.version for file in lock.python_files.values()}
    return resolution.spec.recipe_env(resolution.target, versions)


def image_config(resolution: Resolution, lock: Lock) -> ImageConfig:
    """Return the OCI config: environment, labels. What a job tunes (NCCL_*, UCX_*) belongs to the launch profile,
    not here."""
    env = recipe_env(resolution, lock)
    recipes = [resolution.spec.recipes[name] for name in resolution.order]
    bins = [folder for recipe in recipes for folder in recipe.bins]
    below = dict(lock.base_image.env) if lock.base_image else {}
    values = {**below, "LANG": "C.UTF-8", "VIRTUAL_ENV": VENV, **resolution.runtime.env}
    for recipe in recipes:  # now with locked versions
        values |= {
            name: value
            for name, value in call_recipe(recipe, "runtime", Runtime, env).env.items()
            if name not in resolution.spec.env and name != "PATH"
        }
    own = resolution.runtime.env.get("PATH", "")
    folders = ":".join([f"{VENV}/bin", *bins, own, below.get("PATH", ""), SYSTEM_PATH]).split(":")
    values["PATH"] = ":".join(dict.fromkeys(filter(None, folders)))
    labels = {
        "org.opencontainers.image.title": lock.image,
        "org.opencontainers.image.description": resolution.spec.description,
        "org.opencontainers.image.base.name": lock.base,
        "io.envbuild.target": resolution.target.name,
        "io.envbuild.inputs": lock.inputs,
        "io.envbuild.version": lock.tools["envbuild"],
    }
    return ImageConfig(lock.arch, dict(sorted(values.items())), labels=labels)
