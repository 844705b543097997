"""What the version matrix answers, in words: verdicts, conflicts, tables, what is newer than the facts."""
