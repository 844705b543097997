"""envbuild: from an image spec to a verified squashfs or OCI image, hermetic and the same every time."""

__version__ = "0.1.0"
