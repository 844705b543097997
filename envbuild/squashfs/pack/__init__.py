"""Packs: one layer compressed for squashfs."""
