"""The kinds of image arguments: a squashfs file, the name of a spec, or an image that is elsewhere."""

from __future__ import annotations

from pathlib import Path

from envbuild.core.distributions import has_registry
from envbuild.core.errors import SpecError
from envbuild.core.paths import expand_home
from envbuild.core.regular_file import open_regular
from envbuild.core.shell import shell_word


def find_squashfs_file(name: str) -> Path | None:
    """Return the file that NAME is a path of (it holds a slash or ends in .sqsh); None for a spec's name.

    Raises SpecError for a path where no squashfs file is, and for an image of a registry or an archive.
    """
    if ":" in name and is_elsewhere(name):
        word = shell_word(name[:200])
        published = name.startswith(("docker://", "oci:"))  # perhaps: pull takes its file, else converts the layers
        command = f"pull {word}" if published else f"export {word} --to squashfs"
        raise SpecError(
            f"{name[:200]} is not a squashfs file yet", hint=f"envbuild {command} -o image.sqsh; then name image.sqsh"
        )
    if not name.endswith(".sqsh") and ("/" not in name or name.endswith((".yaml", ".yml"))):
        return None
    path = expand_home(name).absolute()
    try:
        with open_regular(path) as file:
            magic = file.read(4)
    except OSError as error:
        why = error.strerror or "it is not a regular file"
        hint = "envbuild list shows the built images"
        if isinstance(error, FileNotFoundError) and has_registry(name):
            hint = f"for an image of a registry write docker://{shell_word(name)}"
        raise SpecError(f"{name} cannot be read: {why}", hint) from error
    if magic != b"hsqs":
        raise SpecError(f"{name} is not a squashfs file", hint="a spec's path ends in .yaml, an image's in .sqsh")
    return path


def is_elsewhere(name: str) -> bool:
    """Return whether NAME is an image of a registry, an archive or another place."""
    from envbuild.oci.sources.kinds import PREFIXES

    return name.startswith(tuple(PREFIXES))
