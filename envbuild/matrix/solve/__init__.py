"""From a question to a choice of versions."""
