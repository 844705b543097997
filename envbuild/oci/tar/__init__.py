"""The tar of a layer: read from front to back, and written in one canonical form."""
