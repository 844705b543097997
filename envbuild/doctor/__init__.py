"""Doctor: the facts of a machine, and what it lacks for its jobs.

The room imports the standard library only, and runs on Python 3.8: `script` writes it as one file for nodes that have
nothing else. `checks/` has one file for each check, `tools/` one parser for each program, `facts/` what is read without
a program.
"""
