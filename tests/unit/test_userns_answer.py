"""What a process answers to the one that started it is the same error there."""

from __future__ import annotations

import errno

import pytest

from envbuild.core.userns.answer import decode, encode, encode_error
from envbuild.core.userns.namespaces import SetupError
from envbuild.errors import Finding, InputError

pytestmark = pytest.mark.unit


def test_findings_come_back_whole() -> None:
    findings = (Finding("one", "x.yaml:1:1", "do this", ("python: [ADDRESS]",)), Finding("two"))
    with pytest.raises(InputError) as caught:
        decode(encode_error(InputError.of(findings)), "it")
    assert caught.value.findings == findings
    assert len(dict.fromkeys(caught.value.findings)) == 2


def test_a_failed_step_keeps_its_errno() -> None:
    error = SetupError.of("unshare", OSError(errno.ENOSPC, "No space left on device"), "namespaces")
    with pytest.raises(SetupError) as caught:
        decode(encode_error(error), "it")
    assert (caught.value.step, caught.value.code) == ("unshare", errno.ENOSPC)
    assert str(caught.value) == "unshare: namespaces: No space left on device (errno 28)"


def test_a_value_is_itself() -> None:
    assert decode(encode({"a": [1]}), "it") == {"a": [1]}
