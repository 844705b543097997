"""The buildah engine: the same units through buildah."""
