"""Which commit a version of an upstream project stands for.

Recipes that compile from a repository hold a table of releases, newest first: version → full hash of the commit that
upstream's tag names. A version that is not in the table needs the commit beside it in the spec."""

from __future__ import annotations

from collections.abc import Mapping

from envbuild.recipe import Git


def newest(asked: str, releases: Mapping[str, str]) -> str:
    """The newest release that `asked` names (``1.20`` takes 1.20.1); of all of them when it names none; "" when none
    fits."""
    for version in releases:
        if not asked or version == asked or version.startswith(f"{asked}."):
            return version
    return ""


def commit_of(asked: str, commit: str, releases: Mapping[str, str]) -> str:
    """The hash: `commit` where the spec gives one, else that of the newest release that `asked` names, or ""."""
    return commit or releases.get(newest(asked, releases), "")


def pinned(
    name: str,
    origin: str,
    asked: str,
    commit: str,
    releases: Mapping[str, str],
    *,
    tag: str = "v{}",
    submodules: tuple[str, ...] = (),
) -> Git:
    """The source of a recipe: `origin` (``github:openucx/ucx``) at that commit. `tag` is how upstream spells a
    release's; a commit of the spec's own has none."""
    version = "" if commit else newest(asked, releases)
    return Git(name, origin, commit_of(asked, commit, releases), tag.format(version) if version else "", submodules)


def unknown(what: str, asked: str, commit: str, releases: Mapping[str, str]) -> tuple[str, ...]:
    """The refusal of a version whose commit nobody knows, or nothing."""
    if commit_of(asked, commit, releases):
        return ()
    known = ", ".join(releases)
    hint = f"write its commit beside it (version: {asked}, commit: 40 hex digits), or take one of {known}"
    return (f"no commit is known of {what} {asked}; {hint}",)


def needs_version(asked: str, commit: str) -> None:
    """Raises ValueError for a commit without a version: what goes with it is judged by version."""
    if commit and not asked:
        raise ValueError("a commit alone does not say which version it is; write version: beside commit:")
