"""The other side of `envbuild.core.userns.process`: a fresh interpreter becomes root, calls a function and answers.

It reads a job (JSON) from one file descriptor and writes one answer to another; stdout and stderr are the function's.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from envbuild.core.errors import FULL_DISK, EnvbuildError
from envbuild.core.userns.answer import encode, encode_error
from envbuild.core.userns.id_maps import become_root
from envbuild.core.userns.namespaces import SetupError, die_with


def main(job_fd: int, answer_fd: int) -> NoReturn:
    """Do the job, answer, and end."""
    with os.fdopen(job_fd, "rb") as file:
        job: dict[str, Any] = json.loads(file.read())
    os.set_inheritable(answer_fd, False)
    try:
        die_with(job["parent"])
        os.umask(0o022)
        function = function_of(job["entry"])  # before: root of a user namespace may not read what a group may
        become_root(job["parent"], one_id=job["one_id"])
        answer = encode(function(**job["arguments"]))
    except BaseException as error:
        full = isinstance(error, OSError) and error.errno in FULL_DISK
        if not full and not isinstance(error, (SetupError, EnvbuildError)):
            traceback.print_exc()
        answer = encode_error(error)
    sys.stdout.flush()
    sys.stderr.flush()
    with os.fdopen(answer_fd, "wb") as file:
        file.write(answer)
    os._exit(0)


def function_of(entry: str) -> Callable[..., Any]:
    """Return the function called ``module:name``."""
    module, _, name = entry.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function
