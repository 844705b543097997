"""Processes that are root of a user namespace: made, called, and diagnosed where there can be none."""
