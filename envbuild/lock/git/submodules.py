"""The repository of a submodule: the address in .gitmodules as an origin, which a site maps to its own places.

The addresses themselves are never used: any commit may contain any address, and a site may have the repository
elsewhere.
"""

from __future__ import annotations

from envbuild.spec.git_origin import git_origin, plain_path


def submodule_origin(address: str, parent: str) -> str:
    """Return the origin of a submodule's repository: ``github:OWNER/NAME``, ``gitlab:GROUP/NAME``, ``git:HOST/PATH``.

    address: as in .gitmodules; a relative one starts at the address of the parent
    parent: the origin of the repository that has the .gitmodules

    Raises ValueError, with the cause, for an address that is not a repository of another machine.
    """
    if address.startswith(("./", "../")):
        kind, _, path = parent.partition(":")
        return f"{kind}:{_join(path, address)}"
    return git_origin(address)


def _join(path: str, relative: str) -> str:
    """Return `relative` from the repository `path`: ``../`` drops a part of the address (gitsubmodules(7))."""
    parts = path.strip("/").split("/")
    for step in relative.rstrip("/").split("/"):
        if step == "..":
            if not parts:
                break
            parts.pop()
        elif step not in (".", ""):
            parts.append(step)
    if not parts:
        raise ValueError("its relative address leads out of the parent's host")
    return plain_path("/".join(parts))
