"""Sources of images: registries, archives, layouts and the Docker Engine."""
