"""The answer of a process to the one that started it: a value, or the error that it failed with (JSON)."""

from __future__ import annotations

import errno
import json
import os
import traceback
from dataclasses import asdict
from typing import Any

from envbuild.core import errors
from envbuild.core.errors import EngineError, EnvbuildError, Finding
from envbuild.core.userns.namespaces import SetupError


def encode(value: Any) -> bytes:
    """Return the answer that is `value`."""
    return json.dumps({"result": value}).encode()


def encode_error(error: BaseException) -> bytes:
    """Return the answer that is `error`."""
    answer: dict[str, Any]
    if isinstance(error, SetupError):
        answer = {"setup": [error.step, error.reason, error.code]}
    elif isinstance(error, EnvbuildError):
        answer = {"error": type(error).__name__, "findings": [asdict(finding) for finding in error.findings]}
    elif isinstance(error, OSError):
        answer = {"errno": error.errno or errno.EIO, "message": error.strerror or str(error), "file": file_name(error)}
    else:
        answer = {"crash": "".join(traceback.format_exception(error))}
    return json.dumps(answer).encode()


def decode(text: bytes, what: str) -> Any:
    """Return the value in an answer of the process `what`, or raise its error: SetupError, EnvbuildError, OSError."""
    answer: dict[str, Any] = json.loads(text)
    if "setup" in answer:
        raise SetupError(*answer["setup"])
    if "error" in answer:
        kind = getattr(errors, answer["error"], EngineError)
        raise kind.of(map(_finding, answer["findings"]))
    if "errno" in answer:
        raise OSError(answer["errno"], answer["message"], answer["file"])
    if "crash" in answer:
        raise EngineError(f"{what} failed", hint=f"please report this:\n{answer['crash']}")
    return answer["result"]


def file_name(error: OSError) -> str | None:
    """Return the file that an error names. A number is a descriptor of its process alone."""
    return os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else None


def _finding(fields: dict[str, Any]) -> Finding:
    return Finding(**{**fields, "mirror_lines": tuple(fields["mirror_lines"])})  # JSON has no tuples
