"""Finished images: squashfs files for enroot, OCI layouts, the Docker Engine, and the records of what was built."""
