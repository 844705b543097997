"""The engines that there are, preferred ones first: name → class, which is imported when the engine is chosen."""

from __future__ import annotations

ENGINES = {
    "embedded": "envbuild.build.engines.embedded.engine:Embedded",
    "buildah": "envbuild.build.engines.buildah.engine:Buildah",
    "docker": "envbuild.build.engines.docker.engine:Docker",
}
CACHES = ("buildah",)  # engines with a folder of their name in the store, which `store du` and `store gc` know
