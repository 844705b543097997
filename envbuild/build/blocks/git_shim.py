"""A revision for builds that query git.

A tarball of a commit has no history, so a program that prints its revision (``ucx_info -v``, ``ucc_info -v``) would
print none. Installing git in the build root does not help either: there is no repository to read. The configure scripts
run one query, and the recipe knows the answer."""

from __future__ import annotations

import shlex

from envbuild.build.steps import WORK
from envbuild.spec.recipe import Git

FOLDER = f"{WORK}/known-revision"


def git_that_knows(source: Git) -> tuple[list[str], str]:
    """Return commands that put a ``git`` into a folder which answers ``rev-parse`` with the commit of `source`, as
    seven digits, and fails for everything else; and the PATH with that folder first."""
    program = ["#!/bin/sh", f'test "$1" = rev-parse && echo {source.commit[:7]}']
    lines = " ".join(shlex.quote(line) for line in program)
    commands = [f"mkdir -p {FOLDER}", f"printf '%s\\n' {lines} > {FOLDER}/git", f"chmod 755 {FOLDER}/git"]
    return commands, f"{FOLDER}:$PATH"
