"""Squashfs files, read natively."""
