"""Outputs of benchmarks and logs as values, one module a tool: a truncated text is never a whole one."""
