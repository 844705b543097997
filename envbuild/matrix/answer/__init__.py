"""Answers of the version matrix: verdicts, conflicts, tables, and releases newer than the facts."""
