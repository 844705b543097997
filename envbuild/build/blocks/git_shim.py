"""Programs named git for builds that call it in a source without history and without network.

`git_that_knows` answers the one query of configure scripts. A tarball of a commit has no history, so a program that
prints its revision (``ucx_info -v``, ``ucc_info -v``) would print none. Installing git in the build root does not help
either: there is no repository to read.

`git_without_history` is for every wheel. A setup.py calls ``git submodule update --init PATH`` before it compiles, and
fails without a program of that name (flash-attn 0.2.2 to 2.7.3, apex), although the source has the files."""

from __future__ import annotations

import shlex

from envbuild.build.blocks.checks import written
from envbuild.build.steps import WORK
from envbuild.spec.recipe import Git

FOLDER = f"{WORK}/known-revision"
NO_HISTORY = f"{WORK}/no-history"
# Submodules that are named must have files: those of the source are the recipe's to choose, and no command here gets
# more. Without names nothing is compared, for the build may need fewer than there are. All else is a real git's to
# answer, if the unit has one; there is no repository, and a revision would become part of the wheel's version.
PROGRAM = f"""\
#!/bin/sh
test "$1" = -C && cd "$2" && shift 2
if test "$1" = submodule; then
  test "$2" = update && shift 2 && for path; do
    case "$path" in -*|[0-9]|[0-9][0-9]) continue ;; esac
    test -n "$(ls -A "$path" 2>/dev/null)" || {{ echo "fatal: the source lacks submodule $path" >&2; exit 1; }}
  done
  exit 0; fi
PATH="${{PATH#{NO_HISTORY}:}}"
case "$(command -v git)" in ""|{NO_HISTORY}/git) ;; *) exec git "$@" ;; esac
echo "fatal: not a git repository: the source has no history" >&2
exit 128
"""


def git_that_knows(source: Git) -> tuple[list[str], str]:
    """Return commands that put a ``git`` into a folder which answers ``rev-parse`` with the commit of `source`, as
    seven digits, and fails for everything else; and the PATH with that folder first."""
    program = ["#!/bin/sh", f'test "$1" = rev-parse && echo {source.commit[:7]}']
    lines = " ".join(shlex.quote(line) for line in program)
    commands = [f"mkdir -p {FOLDER}", f"printf '%s\\n' {lines} > {FOLDER}/git", f"chmod 755 {FOLDER}/git"]
    return commands, f"{FOLDER}:$PATH"


def git_without_history() -> tuple[list[str], str]:
    """Return commands that put a ``git`` into a folder which updates submodules that the source has, and knows no
    revision; and that folder.

    ``git submodule update PATH`` ends with 1 if PATH has no files, every other query with 128, as git does
    outside of a repository."""
    commands = [f"mkdir -p {NO_HISTORY}", written(f"{NO_HISTORY}/git", PROGRAM), f"chmod 755 {NO_HISTORY}/git"]
    return commands, NO_HISTORY
