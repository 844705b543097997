"""Publishing: finished images to registries and to folders on a shared file system."""
