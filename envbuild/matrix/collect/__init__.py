"""Collectors: each rebuilds one file of ``facts/derived`` from what upstream publishes. `envbuild matrix refresh` runs
them; nothing else of envbuild needs this package."""
