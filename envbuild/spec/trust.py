"""Trust in a project: its recipes are programs and its ``site.yaml`` decides where bytes come from, so a folder is not
trusted because it is the current one (as git's safe.directory).

The folder, the folders of its recipes, images, targets and facts, its recipes and its ``site.yaml`` must belong to the
caller or to root, and no other user may write them. Of a symbolic link, the file that it points at counts, and the
folder of that file. The caller may trust other folders: ``--trust``, ``ENVBUILD_TRUST``, `trust` in the caller's own
``site.yaml``; never the project itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from envbuild.core.errors import Finding, SpecError
from envbuild.core.ownership import Intrusion, find_intrusion, is_replaceable, own_users

VARIABLE = "ENVBUILD_TRUST"
FOLDERS = ("images", "recipes", "targets", "facts", "facts/derived")
_granted: list[Path] = []  # of the command line: a process runs one command


def trust_folder(folder: Path) -> None:
    """Trust `folder` and everything below it in this process (``--trust``). Raises SpecError."""
    if not folder.is_dir():
        raise SpecError("no such folder", "envbuild --trust DIR COMMAND …", f"--trust {folder}")
    _granted.append(folder)


def check_trust(root: Path) -> None:
    """Raise SpecError if others than the caller can change what the project `root` decides, with every such path."""
    if not (found := list(dict.fromkeys(find_intrusions(root)))):
        return
    trusted = [Path(os.path.realpath(folder)) for folder in trusted_folders()]
    here = Path(os.path.realpath(root))
    found = [
        item
        for item in found
        if not any((here if here.is_relative_to(item.path) else item.path).is_relative_to(folder) for folder in trusted)
    ]
    if found:
        raise SpecError.of(_findings(found, here))


def find_intrusions(root: Path) -> Iterator[Intrusion]:
    """Yield every path of the project `root` that others than the caller can change."""
    real = os.path.realpath(root)
    for folder in Path(real).parents:
        if is_replaceable(folder):
            yield Intrusion(folder, "can be written by every user, who can rename the folders in it", False)
    users = own_users()
    for path in _deciding_paths(real):
        places = [path]
        if os.path.islink(path):  # noqa: PTH114 - as in find_intrusion
            target = os.path.realpath(path)
            places = [os.path.dirname(target), target]  # noqa: PTH120
        yield from filter(None, (find_intrusion(place, users) for place in places))


def trusted_folders() -> list[Path]:
    """Return the folders that the caller trusts. Raises SpecError for a relative one in the environment, and for
    mistakes in the caller's own site file."""
    from envbuild.net.site import user_file
    from envbuild.net.site_file import read_site

    listed = [Path(text).expanduser() for text in os.environ.get(VARIABLE, "").split(os.pathsep) if text]
    for folder in listed:
        if not folder.is_absolute():
            raise SpecError(f"'{folder}' is not an absolute path", f"export {VARIABLE}=/DIR[:/DIR]", VARIABLE)
    own = user_file()
    return [*_granted, *listed, *(read_site(own).trust if own and own.is_file() else ())]


def _deciding_paths(root: str) -> list[str]:
    """Return the files and folders that decide what the project at `root` does; some may not exist."""
    paths = [root, *(f"{root}/{name}" for name in (*FOLDERS, "recipes/__pycache__", "site.yaml"))]
    # Python runs the compiled form of a recipe in place of an unchanged one.
    for folder, ending in ((f"{root}/recipes", ".py"), (f"{root}/recipes/__pycache__", ".pyc")):
        with suppress(OSError), os.scandir(folder) as entries:
            paths += sorted(entry.path for entry in entries if entry.name.endswith(ending))
    return paths


def _findings(found: list[Intrusion], root: Path) -> Iterator[Finding]:
    from envbuild.net.site import user_file

    *first, last = found
    for item in first:
        yield Finding(_message(item), str(item.path), _mode_hint(item))
    outside = next((item.path for item in found if not item.path.is_relative_to(root)), root)
    folder = root if root.is_relative_to(outside) else outside if outside.is_dir() else outside.parent
    trust = (
        f"its recipes are programs that run as you; if you trust it:  envbuild --trust {folder} COMMAND …, or  export "
        f"{VARIABLE}={folder}, or in {user_file() or 'your site.yaml'}:  trust: [{folder}]"
    )
    yield Finding(_message(last), str(last.path), "; ".join(filter(None, (_mode_hint(last), trust))))


def _message(item: Intrusion) -> str:
    return f"the project is not trusted: this {'folder' if item.path.is_dir() else 'file'} {item.reason}"


def _mode_hint(item: Intrusion) -> str:
    return f"chmod go-w {item.path}" if item.own else ""
