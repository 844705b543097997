"""Caches of finished units: what other machines built, by the key of its inputs."""
