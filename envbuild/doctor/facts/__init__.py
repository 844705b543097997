"""Facts of a machine, one module for each part of it."""
