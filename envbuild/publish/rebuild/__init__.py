"""``envbuild verify … --rebuild``: an image built again from its lock, without any cache, and compared byte by byte."""
