"""Files that a user writes (specs, recipes, facts): read with limits, and the cause where one cannot be read."""

from __future__ import annotations

from pathlib import Path

from envbuild.core.errors import SpecError
from envbuild.core.regular_file import MAX_TEXT, NotRegularError, TooLargeError, read_bounded


def read_written(path: Path, name: str) -> bytes:
    """Return the bytes of a file, at most `MAX_TEXT`; `name` is the file in messages. Raises SpecError."""
    try:
        return read_bounded(path, MAX_TEXT)
    except FileNotFoundError:
        raise SpecError("no such file", where=name) from None
    except NotRegularError:
        raise SpecError("not a file", where=name) from None
    except TooLargeError:
        raise SpecError(f"the file is larger than {MAX_TEXT >> 20} MiB", "is it the right file?", name) from None
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", where=name) from None
    except ValueError:  # a NUL in the path
        raise SpecError("not a possible file name", where=repr(name)) from None
