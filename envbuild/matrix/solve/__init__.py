"""The way from a question to a choice of versions."""
