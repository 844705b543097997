"""Publishing: finished images to registries and to folders on a shared file system, and from there into a store."""
