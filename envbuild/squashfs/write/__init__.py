"""Squashfs files, merged from packs."""
