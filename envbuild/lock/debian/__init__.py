"""Debian packages: archives, signing keys, and resolution by apt."""
