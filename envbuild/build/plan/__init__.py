"""Plan: from a lock and recipes to units, and to the text of a Containerfile. Pure: same input, same bytes."""
