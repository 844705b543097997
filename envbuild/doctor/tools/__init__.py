"""Parsers of what programs print: pure functions from text to rows, one module for each program.

`complete` of an answer is whether the text has everything that it announces; a truncated one is never a pass. Where a
format announces nothing, the number of rows is compared with what the kernel or the target states."""
