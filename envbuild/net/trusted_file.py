"""Files of keys and certificates that a site names: who can replace one decides whom the site believes."""

from __future__ import annotations

from pathlib import Path

from envbuild.core.ownership import find_any_intrusions
from envbuild.core.shell import shell_word
from envbuild.core.yaml_reader import Reader
from envbuild.net.urls import redact_file


def check_trusted_file(reader: Reader, where: str, key: str, file: str, *, folder: bool = False) -> bool:
    """Return whether the `file` (or `folder`) that the entry `key` of a site names is there and is the user's or root's
    alone; report what is wrong at `where`."""
    path = Path(file)
    if not path.is_file() and not (folder and path.is_dir()):
        reader.wrong(where, f"'{key}': there is no {redact_file(file)}")
        return False
    intruder = next(find_any_intrusions(path), None)
    if intruder:
        hint = f"chmod go-w {shell_word(intruder.path)}" if intruder.own else "copy it into a folder of your own"
        whose = "" if intruder.path == path else f" is not trusted: {intruder.path}"
        reader.wrong(where, f"'{key}': {file}{whose} {intruder.reason}: others can replace it", hint)
    return intruder is None
