"""``envbuild list --changed BASE``: the images that another content, start or check than at a commit of git results
for."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild.cli.commit_files import write_files
from envbuild.cli.image_list import image_rows
from envbuild.core.errors import EnvbuildError, SpecError
from envbuild.core.interpreter import MODE
from envbuild.core.json_text import json_value
from envbuild.core.paths import import_path
from envbuild.core.programs import run_program
from envbuild.core.result import Result
from envbuild.core.text import human_list, table
from envbuild.lock.git.git_program import error_summary, git_command, git_environment
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.project import SHIPPED
from envbuild.spec.trust import VARIABLE, check_repository
from envbuild.spec.workspace import Workspace

NEW, CHANGED = "new", "changed"
ALL = "all parts"
NAMED = 4  # parts named in one line
# Modules do not come from the current folder: a project may have a folder yaml/.
LIST = (
    "import json, runpy, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "runpy.run_module('envbuild', run_name='__main__', alter_sys=True)"
)
TIME = 600  # seconds for the images of the other commit


@dataclass(frozen=True, slots=True)
class Checkout:
    """A commit whose files are in a folder; `project` is the folder in it that the project is in."""

    commit: str
    folder: Path
    project: Path


def changed_images(base: str, workspace: Workspace) -> Result:
    """Return the images of the project's files, as they are now, that are new or changed since the commit where `base`
    (a commit, branch or tag) and the current commit diverge.

    Raises SpecError without a git repository or such a commit, and for an image that cannot be read.
    """
    root = workspace.project.root
    if root is None:
        raise SpecError("no project here: the changes of its files are searched", hint="run it in the project's folder")
    with checkout(base, root, dev_folders(workspace)) as before:
        old, fault = base_keys(before, root)
    rows = image_rows(workspace, keys=True)
    broken = [row for row in rows if not row["keys"]]
    if broken:
        names = human_list([row["name"] for row in broken], NAMED)
        first = broken[0]
        raise SpecError(f"not readable: {names}: {first['description']}", hint=f"envbuild check {first['name']}")
    found = [row | change for row in rows if (change := describe(row, None if fault else old))]
    removed = sorted(set(old) - {row["name"] for row in rows})
    data = {"base": before.commit, "images": found, "removed": removed}
    return Result(data, "\n".join(lines(before.commit, found, removed, fault)))


def describe(row: Mapping[str, Any], old: Mapping[str, Mapping[str, str]] | None) -> dict[str, Any]:
    """Return `change` and `because` of an image; nothing if it is unchanged. `old`: image → its parts at the other
    commit; None if they are unknown."""
    if old is None:
        return {"change": CHANGED, "because": [ALL]}
    if row["name"] not in old:
        return {"change": NEW, "because": [ALL]}
    before, after = old[row["name"]], row["keys"]
    parts = [part for part in {**after, **before} if after.get(part) != before.get(part)]
    return {"change": CHANGED, "because": parts} if parts else {}


def lines(commit: str, rows: list[dict[str, Any]], removed: list[str], fault: str) -> Iterator[str]:
    """Yield the lines that are printed."""
    if fault:
        yield f"all images count as changed: {commit[:12]} is not comparable: {fault}"
    if rows:
        columns = ("name", "target", "lock", "change", "because")
        cells = [[*(row[column] for column in columns[:-1]), human_list(row["because"], NAMED)] for row in rows]
        yield table([column.upper() for column in columns], cells)
    else:
        yield f"no image changed since {commit[:12]}"
    if removed:
        yield f"removed: {human_list(removed, len(removed))}"


def common_folder(root: Path) -> Path:
    """Return the folder of git that all working trees of a repository share. Raises SpecError."""
    return root / git(root, "rev-parse", "--git-common-dir")


@contextmanager
def checkout(base: str, root: Path, dev: Sequence[Path] = ()) -> Iterator[Checkout]:
    """Yield the files of the commit where `base` and the current commit diverge, in a temporary folder; only those of
    the project `root`, which may not be in it.

    Objects of the repository are read without its filters, which are programs: files of Git LFS are pointers, and
    submodules are left out. Raises SpecError, also for a repository of another user.

    dev: project folders of the images. One in the repository is that of the commit; another one is compared with
        itself, because no commit has it.
    """
    if base.startswith("-"):
        raise SpecError(f"{base!r} is not a commit, branch or tag", hint="envbuild list --changed origin/main")
    top = Path(git(root, "rev-parse", "--show-toplevel"))
    if not root.resolve().is_relative_to(top.resolve()):
        what = f"the repository of {root} has its work tree elsewhere: {top}"
        raise SpecError(what, hint="git config --unset core.worktree")
    check_repository(root, [top / ".git", Path(git(root, "rev-parse", "--absolute-git-dir")), common_folder(root)])
    hint = f"git fetch --unshallow origin, or fetch-depth: 0 of actions/checkout; is {base} a commit, branch or tag?"
    commit = git(root, "merge-base", "HEAD", f"{base}^{{commit}}", hint=hint)
    inside = root.resolve().relative_to(top.resolve())
    with tempfile.TemporaryDirectory(prefix="envbuild-base-") as name:
        # at the same depth, so that relative paths out of the repository lead to the same names
        files = Path(name, "files", *top.resolve().parts[1:])
        project = files / inside
        project.mkdir(parents=True)
        for folder in outermost([inside, *inner_folders(dev, top)]):
            (files / folder).mkdir(parents=True, exist_ok=True)
            if tree := project_tree(top, commit, folder):
                write_files(Path(git(root, "rev-parse", "--absolute-git-dir")), tree, commit, files / folder)
        for folder in dev:
            link = Path(name, "files", *folder.parts[1:])
            if not folder.is_relative_to(top.resolve()) and not link.exists():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(folder)
        yield Checkout(commit, Path(name), project)


def dev_folders(workspace: Workspace) -> tuple[Path, ...]:
    """Return the project folders (`dev`) of all images that can be read."""
    found: list[Path] = []
    for name in workspace.project.images():
        with suppress(EnvbuildError):
            found += [project.folder for project in load_image_spec(name, workspace.project).dev]
    return tuple(dict.fromkeys(found))


def inner_folders(folders: Sequence[Path], top: Path) -> list[Path]:
    """Return those of the folders that are in the work tree `top`, relative to it."""
    return [path.relative_to(top.resolve()) for path in folders if path.is_relative_to(top.resolve())]


def outermost(folders: Sequence[Path]) -> list[Path]:
    """Return relative folders without those that are in another of them."""
    every = dict.fromkeys(folders)
    return [path for path in every if not any(path != other and path.is_relative_to(other) for other in every)]


def project_tree(top: Path, commit: str, inside: Path) -> str:
    """Return the tree of the folder `inside` in a commit, "" if it is not there."""
    with suppress(SpecError):
        return git(top, "rev-parse", "--verify", "--quiet", f"{commit}:{'/'.join(inside.parts)}")
    return ""


def base_keys(before: Checkout, root: Path) -> tuple[dict[str, dict[str, str]], str]:
    """Return image → its parts at the other commit, and why they are unknown ("": they are not).

    A process of its own reads them: recipes of two commits have the same names. If the project is a checkout of
    envbuild, it is the envbuild of that commit: its code decides images, too.
    """
    env = dict(os.environ) | {VARIABLE: str(before.folder)}
    own = [str(before.project)] if root == SHIPPED and (before.project / "envbuild").is_dir() else []
    command = [sys.executable, *MODE, "-I", "-c", LIST, json.dumps([*own, *import_path()]), "list", "--keys", "--json"]
    done = run_program(command, env=env, cwd=before.project, timeout=TIME, text=True)
    if done.returncode:
        found = [line for line in done.stderr.splitlines() if line.startswith(("error:", "Error:"))]
        return {}, found[0] if found else f"envbuild list --keys: exit code {done.returncode}"
    try:
        images = json_value(done.stdout)["images"]
        return {row["name"]: row["keys"] for row in images if row["keys"]}, ""
    except (ValueError, TypeError, KeyError):
        return {}, "its envbuild prints no keys of images"


def git(folder: Path, *arguments: str, hint: str = "") -> str:
    """Return what git prints in `folder`, without the end of the line. Raises SpecError."""
    # git refuses a repository of another user, whose configuration names programs: its list of exceptions is emptied
    command = git_command(None, "-C", str(folder), *arguments, settings=("safe.directory=",))
    done = run_program(command, env=git_environment(), cwd="/", timeout=TIME)
    if done.returncode:
        why = error_summary(done.stderr) if done.stderr.strip() else "nothing is common with the current commit"
        raise SpecError(
            f"git {arguments[0]}: {why}", hint=hint or "the project must be in a git repository of your own"
        )
    return os.fsdecode(done.stdout).removesuffix("\n")
