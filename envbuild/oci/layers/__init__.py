"""Canonical layers: written, read, compared and applied."""
