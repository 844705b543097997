"""The content of a squashfs file, read without mounting or running anything."""
