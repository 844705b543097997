"""The JSON answer of a command (docs/json.md): one object with `schema`, also when the command fails or is stopped."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envbuild.core import signals
from envbuild.core.errors import EnvbuildError, Finding
from envbuild.core.text import without_logins

SCHEMA = 1  # raised when a key is renamed, removed or gets another meaning; not when one is added
INTERRUPTED = "interrupted"
INTERNAL = "internal"


@dataclass(slots=True)
class JsonAnswer:
    """State of the answer: whether JSON is requested, whether it is printed, and the results that an error must not
    lose.
    """

    requested: bool = False
    printed: bool = False
    results: dict[str, Any] = field(default_factory=dict)


answer = JsonAnswer()  # of this process: a process runs one command


def note_request(value: bool) -> bool:
    """Record whether the command line has ``--json`` (the callback of that option)."""
    answer.requested = value
    return value


def encode(value: Mapping[str, Any]) -> str:
    """Return an answer as text: `schema` first in meaning, keys sorted."""
    text = io.StringIO()  # a list of all parts, as `json.dumps` makes it, would take ten times its memory
    for part in json.JSONEncoder(indent=1, sort_keys=True).iterencode({"schema": SCHEMA, **value}):
        text.write(part)
    return text.getvalue()


def encode_error(error: EnvbuildError) -> str:
    """Return the answer of a command that failed, with the results so far."""
    return encode_failure(error.code, error.exit_code, error.findings)


def encode_failure(code: str, exit_code: int, findings: Sequence[Finding]) -> str:
    """Return the answer of a command that ended without its result, with the results so far."""
    description = {"code": code, "exit_code": exit_code, "findings": [finding_data(finding) for finding in findings]}
    return encode({**answer.results, "error": description})


def finding_data(finding: Finding) -> dict[str, str]:
    """Return a finding as JSON has it."""
    texts = {"message": finding.message, "where": finding.where, "hint": finding.hint}
    return {key: without_logins(text) for key, text in texts.items()}


def keep_on_error(key: str, rows: list[Any]) -> None:
    """Put `rows`, as far as they get, under `key` into the answer of a command that fails from now on."""
    answer.results = {key: rows}


def print_answer(text: str) -> None:
    """Print the answer, the only one of the process. A signal does not cut it in two: the command is complete."""
    signals.finish()
    answer.printed = True
    sys.stdout.flush()
    left = memoryview(f"{text}\n".encode())
    while left:  # without a buffer (PYTHONUNBUFFERED) a signal ends one write early
        left = left[sys.stdout.buffer.write(left) :]
    sys.stdout.flush()


def print_failure(text: str) -> None:
    """Print the answer `text` of a command that failed, if JSON is requested and no answer is printed."""
    if answer.requested and not answer.printed:
        with contextlib.suppress(OSError):  # stdout may be what failed
            print_answer(text)


def print_interruption() -> None:
    """Print the answer of a command that a signal ends, for `signals.leftover`."""
    finding = Finding(signals.reason(), hint="run the command again")
    print_failure(encode_failure(INTERRUPTED, signals.exit_code(), [finding]))
