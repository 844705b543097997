"""Trust in a project: its recipes are programs and its ``site.yaml`` decides where bytes come from, so a folder is not
trusted because it is the current one (as git's safe.directory).

The folder, the folders of its recipes, images, targets and facts, all that is below ``recipes/`` and its ``site.yaml``
must belong to the caller or to root, and no other user may write them. So must each spec, lock, target and fact file
that a command reads, and its folder, in a project or not. Of a symbolic link, the file that it points at counts, and
the folder of that file. Nor may another user rename what is in the folders above, or on the way of a link. The caller
may trust other folders: ``--trust``, ``ENVBUILD_TRUST``, `trust` in the caller's own ``site.yaml``; never the project
itself.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from envbuild.core.errors import Finding, SpecError
from envbuild.core.ownership import Intrusion, find_at, find_file_intrusions, find_renamers, own_users
from envbuild.core.paths import expand_home
from envbuild.core.shell import shell_word
from envbuild.spec.project_intrusions import find_intrusions

VARIABLE = "ENVBUILD_TRUST"
DECIDING = ("HEAD", "config", "config.worktree", "packed-refs", "shallow", "commondir", "gitdir")  # of a repository
MOST_ALTERNATES = 100
_granted: list[Path] = []  # of the command line: a process runs one command


def trust_folder(folder: Path) -> None:
    """Trust `folder` and everything below it in this process (``--trust``). Raises SpecError."""
    if not folder.is_dir():
        raise SpecError("no such folder", "envbuild --trust DIR COMMAND …", f"--trust {folder}")
    _granted.append(folder)


def find_distrusted(root: Path) -> list[Intrusion]:
    """Return the paths by which others than the caller can change what the project `root` decides, unless the caller
    trusts them: of very many those that are found first. Raises SpecError for a mistake in what the caller trusts."""
    found: dict[Intrusion, None] = {}
    trusted: list[Path] | None = None
    for item in find_intrusions(root, found):
        trusted = trusted_folders() if trusted is None else trusted
        if not is_trusted(item, root, trusted):
            found[item] = None
    return list(found)


def untrusted_project(root: Path, found: list[Intrusion]) -> SpecError:
    """Return the error for a project that others can change, with every path of `find_distrusted`."""
    what, because = "the project is not trusted: this", "its recipes are programs that run as you"
    return SpecError.of(_findings(found, Path(os.path.realpath(root)), what, because))


def check_file(path: Path, shipped: Iterable[Path] = ()) -> None:
    """Raise SpecError if others than the caller can change the file at `path`, if there is one; with every such path.

    shipped: folders that are trusted, with all that they contain.
    """
    folder = Path(os.path.realpath(path.parent))
    if any(folder.is_relative_to(os.path.realpath(other)) for other in shipped):
        return
    _refuse(find_file_intrusions(path), folder, "not trusted: this", "it decides what commands do")


def check_dev_folder(folder: Path, names: Iterable[str]) -> None:
    """Raise SpecError if others than the caller can change a project folder (`dev:` of a spec), or the files and
    folders in it with these names (relative paths), with every such path."""
    real, users = os.path.realpath(folder), own_users()
    found = [*find_renamers(str(folder), users), *find_at(real, users)]
    found += [item for name in names for item in find_at(f"{real}/{name}", users)]
    _refuse(found, folder, "the project folder is not trusted: this", "its code becomes part of the image")


def check_index(folder: Path, repository: Path, common: Path) -> None:
    """Raise SpecError if others than the caller can change which files the git work tree `folder` has, with every such
    path.

    repository: its git directory. common: that of all its working trees.
    """
    users = own_users()
    found = list(find_at(str(folder / ".git"), users))
    for place in dict.fromkeys((repository, common)):
        found += find_renamers(str(place), users)
        real = os.path.realpath(place)
        for name in (*DECIDING, "index", "info", "info/exclude"):
            found += find_at(f"{real}/{name}", users)
        for path in (real, *sorted(str(path) for path in Path(real).glob("sharedindex.*"))):
            found += find_at(path, users)
    _refuse(found, folder, "the repository is not trusted: this", "its index decides which files are content")


def check_repository(root: Path, folders: Iterable[Path]) -> None:
    """Raise SpecError if others than the caller can change the git repository of the project `root`, with every path.

    folders: its own folder and the one that its working trees share. Who writes references or objects decides which
    recipes another commit has.
    """
    found = (item for folder in dict.fromkeys(folders) for item in find_repository_intrusions(folder))
    _refuse(found, root, "the repository is not trusted: this", "recipes of its commits are programs that run as you")


def find_repository_intrusions(folder: Path) -> Iterator[Intrusion]:
    """Yield every path in a folder of git by which others than the caller can change its commits."""
    users, top = own_users(), os.path.realpath(folder)
    yield from find_renamers(str(folder), users)
    paths = [top, *(f"{top}/{name}" for name in DECIDING)]
    for part in ("refs", "info"):
        paths += _whole(f"{top}/{part}")
    for objects in _object_folders(f"{top}/objects"):
        if objects != f"{top}/objects":
            yield from find_renamers(objects, users)
        paths += _whole(objects)
    for path in paths:
        yield from find_at(path, users)


def _whole(folder: str) -> Iterator[str]:
    yield folder
    for inner, folders, files in os.walk(folder):
        yield from (f"{inner}/{name}" for name in sorted((*folders, *files)))


def _object_folders(first: str) -> list[str]:
    """Return a folder of objects, and those whose objects it uses (gitrepository-layout(5), info/alternates)."""
    found = [first]
    for folder in found:
        with contextlib.suppress(OSError):
            listed = Path(folder, "info/alternates").read_text(errors="surrogateescape").split("\n")
            # of any characters; git itself follows five in a chain
            more = (os.path.normpath(os.path.join(folder, line)) for line in listed if line)  # noqa: PTH118
            found += [path for path in dict.fromkeys(more) if path not in found][: MOST_ALTERNATES - len(found)]
    return found


def trusted_folders() -> list[Path]:
    """Return the folders that the caller trusts. Raises SpecError for a relative one in the environment, and for
    mistakes in the caller's own site file."""
    from envbuild.net.site import user_file
    from envbuild.net.site_file import read_site

    listed = [expand_home(text) for text in os.environ.get(VARIABLE, "").split(os.pathsep) if text]
    for folder in listed:
        if not folder.is_absolute():
            raise SpecError(f"'{folder}' is not an absolute path", f"export {VARIABLE}=/DIR[:/DIR]", VARIABLE)
    own = user_file()
    if own is None or not own.is_file() or any(find_file_intrusions(own)):  # `load_site` refuses it
        return [*_granted, *listed]
    return [*_granted, *listed, *read_site(own).trust]


def _refuse(intrusions: Iterable[Intrusion], folder: Path, what: str, because: str) -> None:
    """Raise SpecError for those paths that the caller does not trust: `folder` is what the caller named."""
    if not (found := list(dict.fromkeys(intrusions))):
        return
    if found := drop_trusted(found, folder):
        raise SpecError.of(_findings(found, Path(os.path.realpath(folder)), what, because))


def drop_trusted(found: Iterable[Intrusion], folder: Path) -> list[Intrusion]:
    """Return those paths that the caller does not trust: `folder` is what the caller named. Raises SpecError."""
    trusted = trusted_folders()
    return [item for item in found if not is_trusted(item, folder, trusted)]


def is_trusted(item: Intrusion, folder: Path, trusted: Iterable[Path]) -> bool:
    """Return whether one of the folders that the caller trusts has a path, or all that is in `folder`, the one that the
    caller named."""
    here = Path(os.path.realpath(folder))
    path = here if here.is_relative_to(item.path) else item.path
    return any(path.is_relative_to(os.path.realpath(other)) for other in trusted)


def _findings(found: list[Intrusion], root: Path, what: str, because: str) -> Iterator[Finding]:
    from envbuild.net.site import user_file

    plain = [item for item in found if _is_plain(str(item.path))]
    for item in found:
        if item not in plain:  # the target of a link, such as /dev/null: neither its mode nor its folder is the fault
            yield Finding(f"{what} is not a regular file", str(item.path), "replace the link to it with a regular file")
    if not plain:
        return
    *first, last = plain
    for item in first:
        yield Finding(_message(item, what), str(item.path), _mode_hint(item))
    outside = next((item.path for item in plain if not item.path.is_relative_to(root)), root)
    folder = root if root.is_relative_to(outside) else outside if os.path.isdir(outside) else outside.parent  # noqa: PTH112
    trust = (
        f"{because}; if you trust it:  envbuild --trust {shell_word(folder)} COMMAND …, or  export "
        f"{VARIABLE}={shell_word(folder)}, or in {user_file() or 'your site.yaml'}:  trust: [{folder}]"
    )
    yield Finding(_message(last, what), str(last.path), "; ".join(filter(None, (_mode_hint(last), trust))))


def _is_plain(path: str) -> bool:
    """Return whether a path is a file or a folder, or a link; it may be closed to this user."""
    return os.path.isfile(path) or os.path.isdir(path) or os.path.islink(path)  # noqa: PTH112, PTH113, PTH114


def _message(item: Intrusion, what: str) -> str:
    return f"{what} {'folder' if os.path.isdir(item.path) else 'file'} {item.reason}"  # noqa: PTH112 - as _is_plain


def _mode_hint(item: Intrusion) -> str:
    if not item.own or item.path.stat().st_mode & stat.S_ISVTX:  # /tmp: all users need it
        return ""
    return f"chmod go-w {shell_word(item.path)}"
