"""The JSON answer of a command (docs/json.md): one object with `schema`, also when the command fails."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from envbuild.core.errors import EnvbuildError, Finding

SCHEMA = 1  # raised when a key is renamed, removed or gets another meaning; not when one is added


@dataclass(slots=True)
class JsonAnswer:
    """State of the answer: whether JSON is requested, and the results that an error must not lose."""

    requested: bool = False
    results: dict[str, Any] = field(default_factory=dict)


answer = JsonAnswer()  # of this process: a process runs one command


def note_request(value: bool) -> bool:
    """Record whether the command line has ``--json`` (the callback of that option)."""
    answer.requested = value
    return value


def encode(value: Mapping[str, Any]) -> str:
    """Return an answer as text: `schema` first in meaning, keys sorted."""
    return json.dumps({"schema": SCHEMA, **value}, indent=1, sort_keys=True)


def encode_error(error: EnvbuildError) -> str:
    """Return the answer of a command that failed, with the results so far."""
    findings = [finding_data(finding) for finding in error.findings]
    description = {"code": error.code, "exit_code": error.exit_code, "findings": findings}
    return encode({**answer.results, "error": description})


def finding_data(finding: Finding) -> dict[str, str]:
    """Return a finding as JSON has it."""
    return {"message": finding.message, "where": finding.where, "hint": finding.hint}


@contextmanager
def kept_on_error(key: str, rows: list[Any]) -> Iterator[None]:
    """Put `rows`, as far as they got, under `key` into the answer of a command that fails inside of the context."""
    answer.results = {key: rows}
    yield
    answer.results = {}
