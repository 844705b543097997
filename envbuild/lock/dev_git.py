"""Content that git tracks in a project folder (`dev:` of a spec), or that is untracked there and not ignored.

git believes the names in an index, which may lead out of the folder, and takes a folder with the files of a repository
for one. So it gets the repository of the nearest work tree, the names are judged, and so are the owners of what
decides them."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from envbuild.core.errors import SpecError
from envbuild.core.ownership import sudo_user
from envbuild.core.regular_file import read_bounded
from envbuild.core.shell import shell_word
from envbuild.core.text import printable
from envbuild.lock.git.git_program import SlowError, error_summary, run_git
from envbuild.lock.git.repositories import find_git_directory
from envbuild.spec.trust import check_index

NO_PROGRAM = "core.fsmonitor=false"  # which the settings of a repository name
LONGEST = 4096  # bytes of a file that names a folder
LARGEST = 1 << 20  # bytes of a configuration
BY_VARIABLE = ("GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS")  # settings in the environment (git-config(1))
UNSET = 1  # exit code of git config for a setting that no file has
LIMIT = 60  # seconds: git waits for a .gitignore that is a FIFO


def find_work_tree(folder: Path) -> Path | None:
    """Return the work tree of git that a folder is in; None if it is in none."""
    return next((place for place in (folder, *folder.parents) if os.path.lexists(place / ".git")), None)


def list_git(folder: Path, place: Path, *, alone: bool = False) -> Iterator[str]:
    """Yield paths of files relative to `folder`, which is in the work tree `place`; also of submodules. Raises
    SpecError.

    alone: as if `folder` was a work tree without commits: of one that `place` ignores as a whole.
    """
    for name in dict.fromkeys(ask_git(folder, place, alone)):
        if not is_inside(name):
            text = f"the repository of {printable(str(folder))} names a file outside of it: {printable(name)}"
            raise SpecError(text, f"git -C {shell_word(printable(str(folder)))} ls-files")
        if not is_there(folder, name):  # removed, and not yet committed
            continue
        inner = folder / name
        if inner.is_dir() and not inner.is_symlink():  # a submodule, or a repository in the folder
            found = list_git(inner, inner) if os.path.lexists(inner / ".git") else ()
            yield from (f"{name}/{path}" for path in found)
        else:
            yield name


def ask_git(folder: Path, place: Path, alone: bool = False) -> list[str]:
    """Return the names that git lists in a folder. Raises SpecError."""
    name = shell_word(printable(str(folder)))
    repository = find_git_directory(place)
    if repository is None:
        raise SpecError(
            f"{printable(str(place / '.git'))} is not a repository",
            f"git -C {name} status",
        )
    check_index(place, repository, common_directory(repository))
    home = home_of_caller(place)
    try:
        settings = (NO_PROGRAM, *ignored_by_user(repository, home, always=alone))
        with new_repository() if alone else nullcontext(repository) as used:
            top = folder if alone else place
            words = ("-C", str(folder), f"--work-tree={top}", "ls-files", "-z", "--cached", "--others")
            done = run_git(used, *words, "--exclude-standard", settings=settings, extra=home, timeout=LIMIT)
    except SlowError:
        text = f"git did not list the files of {printable(str(folder))} in {LIMIT} s"
        raise SpecError(text, f"is a .gitignore there a pipe? find {name} -name .gitignore -type p") from None
    if done.returncode:
        text = f"git cannot list the files of {printable(str(folder))}: {error_summary(done.stderr)}"
        raise SpecError(text, f"git -C {name} status")
    return [os.fsdecode(item).rstrip("/") for item in done.stdout.split(b"\0") if item]


@contextmanager
def new_repository() -> Iterator[Path]:
    """Yield a git directory without commits, an index, and names that are ignored (gitrepository-layout(5))."""
    with TemporaryDirectory(prefix="envbuild-") as name:
        folder = Path(name)
        for part in ("objects", "refs"):
            (folder / part).mkdir()
        (folder / "HEAD").write_text("ref: refs/heads/main\n")
        yield folder


def home_of_caller(place: Path) -> dict[str, str | None]:
    """Return the variables by which git finds the home of the user who called ``sudo``, for a work tree of that user:
    what is ignored does not depend on who builds. Empty otherwise."""
    user = sudo_user()
    try:
        if not user or place.stat().st_uid != user:
            return {}
        return {"HOME": pwd.getpwuid(user).pw_dir, "XDG_CONFIG_HOME": None}
    except (OSError, KeyError):
        return {}


def ignored_by_user(repository: Path, home: Mapping[str, str | None], *, always: bool) -> list[str]:
    """Return the setting that names the user's own file of ignored names (git-config(1), core.excludesFile), which
    often has ``.env``: git runs without the configuration of the user (`git_environment`). None where no configuration
    has it; git reads the default place by itself. `home`: of `home_of_caller`. `always`: also that of the
    repository alone. Raises SlowError, SpecError for a configuration that git cannot read."""
    files = user_configurations({**os.environ, **home})
    known = any(may_have_setting(file) for file in files) or bool(set(BY_VARIABLE) & set(os.environ))
    if not (always or known):
        return []
    # With the repository, of which conditions of includes may be (hasconfig, gitdir, onbranch).
    asked = ("config", "--includes", "--type=path", "--get", "core.excludesFile")
    done = run_git(repository, *asked, extra={**user_environment(), **home}, timeout=LIMIT)
    if done.returncode == 0:
        return ["core.excludesFile=" + os.fsdecode(done.stdout).removesuffix("\n")]
    if done.returncode == UNSET:
        return []
    why = error_summary(done.stderr)  # what it ignores, such as .env, would be part of the image
    raise SpecError(f"git cannot read the configuration of the user: {why}", "git config --get core.excludesFile")


def user_environment() -> dict[str, str | None]:
    """Return the variables by which git reads the configuration of the user, as it does without envbuild."""
    own = {name: value for name, value in os.environ.items() if name.startswith("GIT_CONFIG_")}
    return {"GIT_CONFIG_GLOBAL": None, "GIT_CONFIG_NOSYSTEM": None, **own}


def may_have_setting(file: Path) -> bool:
    """Return whether a configuration may name a file of ignored names, by itself or by one that it includes; most have
    neither, and a call of git takes as long as the rest of a run that finds nothing to do."""
    try:
        content = read_bounded(file, LARGEST).lower()
    except FileNotFoundError:
        return False
    except OSError:  # git reports why
        return True
    return b"excludesfile" in content or b"include" in content


def user_configurations(environment: Mapping[str, str | None]) -> list[Path]:
    """Return the configurations of the user and the machine, those that take precedence first."""
    home, folder = (
        environment.get(name) or "" for name in ("HOME", "XDG_CONFIG_HOME")
    )  # as git does: no user database
    named, system = (environment.get(f"GIT_CONFIG_{name}") or "" for name in ("GLOBAL", "SYSTEM"))
    own = [Path(home, ".gitconfig")] if home else []
    own += [Path(folder or f"{home}/.config", "git/config")] if folder or home else []
    own = [Path(named)] if named else own
    return [*own, Path(system or "/etc/gitconfig")]


def common_directory(repository: Path) -> Path:
    """Return the git directory that all working trees of a repository share (gitrepository-layout(5), commondir)."""
    try:
        return repository / os.fsdecode(read_bounded(repository / "commondir", LONGEST).removesuffix(b"\n"))
    except OSError:
        return repository


def is_inside(name: str) -> bool:
    """Return whether a name of git is one of a file in the folder."""
    return not {"", ".", ".."} & set(name.split("/"))


def is_there(folder: Path, name: str) -> bool:
    """Return whether a folder has a file, with no link on the way to it."""
    above = (name[:at] for at, letter in enumerate(name) if letter == "/")
    try:
        return all(stat.S_ISDIR(os.lstat(folder / part).st_mode) for part in above) and os.path.lexists(folder / name)
    except OSError:
        return False
