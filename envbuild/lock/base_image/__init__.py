"""Base images: their digests and what they contain."""
