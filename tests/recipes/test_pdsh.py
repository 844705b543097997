"""pdsh: a client alone."""

from __future__ import annotations

import pytest

from tests.support.recipes import image, recipe

pytestmark = pytest.mark.unit


def test_pdsh_installs_no_server() -> None:
    made = recipe("pdsh")
    runtime = made.runtime(image())
    assert runtime.debian == ("openssh-client", "pdsh", "procps") and runtime.env == {"PDSH_RCMD_TYPE": "ssh"}
