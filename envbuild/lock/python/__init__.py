"""Python packages: indexes, and resolution by uv."""
