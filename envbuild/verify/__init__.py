"""Verify: what was declared is what is inside, shown without a GPU, and never claimed without having been looked at."""
