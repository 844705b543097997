"""A client of image registries."""
