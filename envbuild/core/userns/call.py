"""Call a function where owners read as root's own: here for root, for others in a process in a user namespace.

Layers hold files of many owners; a user without privileges makes and reads them with subordinate ids
(user_namespaces(7)).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from envbuild.core.errors import EngineError
from envbuild.core.userns.diagnose import fix_for
from envbuild.core.userns.namespaces import SetupError
from envbuild.core.userns.process import spawn

CHUNK = 1 << 20


def call(function: Callable[..., Any], **arguments: Any) -> Any:
    """Return ``function(**arguments)``; arguments and result are JSON, paths in them absolute.

    Raises what the function raises, and EngineError where there is no user namespace.
    """
    if os.geteuid() == 0:
        return function(**arguments)
    child = spawn(function, arguments)
    try:
        output, _ = child.process.communicate()
        with namespace_needed():
            return child.result(output)
    finally:
        child.kill()


def stream(function: Callable[..., Any], **arguments: Any) -> Iterator[bytes]:
    """Yield what ``function(**arguments)`` writes to stdout, in chunks, in a process of its own. Raises as `call`."""
    child = spawn(function, arguments)
    try:
        assert child.process.stdout is not None
        while chunk := child.process.stdout.read(CHUNK):
            yield chunk
        with namespace_needed():
            child.result()
    finally:
        child.kill()


@contextlib.contextmanager
def namespace_needed() -> Iterator[None]:
    """Turn a failed step of setting up into an error with what to type."""
    try:
        yield
    except SetupError as error:
        reason = f"no user namespace with subordinate ids: {error}"
        raise EngineError(reason, hint=fix_for(error.step, error.code)) from None
