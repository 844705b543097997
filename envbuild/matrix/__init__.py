"""The version matrix: sourced facts, a solver that picks, an answer that says because."""
