"""Answers of a process to its parent: the same values and errors there."""

from __future__ import annotations

import errno

import pytest

from envbuild.core.errors import BuildError, EngineError, EnvbuildError, Finding, InputError
from envbuild.core.userns.answer import decode, encode, encode_error
from envbuild.core.userns.entry import function_of
from envbuild.core.userns.namespaces import SetupError

pytestmark = pytest.mark.unit


def test_findings_are_transferred_whole() -> None:
    findings = (Finding("one", "x.yaml:1:1", "do this", ("python: [ADDRESS]",)), Finding("two"))
    with pytest.raises(InputError) as caught:
        decode(encode_error(InputError.of(findings)), "it")
    assert caught.value.findings == findings
    assert len(dict.fromkeys(caught.value.findings)) == 2


def test_a_failed_step_has_its_errno() -> None:
    error = SetupError.of("unshare", OSError(errno.ENOSPC, "No space left on device"), "namespaces")
    with pytest.raises(SetupError) as caught:
        decode(encode_error(error), "it")
    assert (caught.value.step, caught.value.code) == ("unshare", errno.ENOSPC)
    assert str(caught.value) == "unshare: namespaces: No space left on device (errno 28)"


class Special(BuildError):
    """An error that only one module knows."""


def returned(error: BaseException) -> Exception:
    with pytest.raises(Exception) as caught:  # the class itself is compared
        decode(encode_error(error), "a test")
    return caught.value


@pytest.mark.parametrize("value", [None, 1, "text", ["a", {"b": [1, 2]}], {"error": "no error", "setup": []}])
def test_values(value: object) -> None:
    assert decode(encode(value), "a test") == value


def test_an_error_of_a_local_class_becomes_its_base_class() -> None:
    found = returned(Special("one", "two"))
    assert type(found) is EngineError
    assert (found.message, found.hint) == ("one", "two")


def test_errors_of_the_system() -> None:
    found = returned(OSError(errno.ENOSPC, "No space left on device", "/place"))
    assert str(found) == "[Errno 28] No space left on device: '/place'" and isinstance(found, OSError)
    assert (found.errno, found.filename) == (errno.ENOSPC, "/place")
    nameless = returned(OSError("odd"))
    assert isinstance(nameless, OSError) and nameless.errno == errno.EIO


def test_a_bug_has_the_hint_to_report_it() -> None:
    found = returned(ZeroDivisionError("by zero"))
    assert isinstance(found, EnvbuildError)
    assert found.message == "a test failed"
    assert "please report this" in found.hint and "ZeroDivisionError: by zero" in found.hint


def test_a_function_is_found_by_its_name() -> None:
    assert function_of(f"{encode.__module__}:{encode.__qualname__}") is encode
