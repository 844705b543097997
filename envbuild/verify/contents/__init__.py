"""What a squashfs file holds, read without mounting or running anything."""
