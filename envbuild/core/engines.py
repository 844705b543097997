"""The engines that there are, preferred ones first: name → class, which is imported when the engine is chosen."""

from __future__ import annotations

ENGINES = {
    "embedded": "envbuild.engines.embedded:Embedded",
    "buildah": "envbuild.engines.buildah:Buildah",
}
