"""Where images come from: registries, archives, layouts and the Docker Engine."""
