"""A Python process in the root of an image: it loads no code from there.

After pivot_root the paths of the interpreter lead into an image. An import, a codec that is needed for the first
time, and a traceback, which reads lines of source and obeys their ``coding:``, would run or parse the image's files
with the rights of this process.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType


class NoImports:
    """A finder of modules (`sys.meta_path`) that finds none and lets no other look."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """Raise ImportError."""
        raise ImportError(f"{name} is not loaded from the root of an image", name=name)


def forbid_imports() -> None:
    """Make every further import in this process and its forks fail; modules that are loaded remain."""
    sys.meta_path[:] = [NoImports]
    sys.path_hooks.clear()
    sys.path_importer_cache.clear()
    sys.path.clear()


def describe_crash(error: BaseException) -> str:
    """Return an error and where it came from, one line each, without reading any source file."""
    lines = [f"{type(error).__name__}: {ascii(str(error))[1:-1]}"]
    trace = error.__traceback__
    while trace:
        code = trace.tb_frame.f_code
        lines.append(f"  {code.co_filename}:{trace.tb_lineno} in {code.co_qualname}")
        trace = trace.tb_next
    return "\n".join(lines)
