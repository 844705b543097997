"""Scripts of jobs, which may export tokens: other users must not see them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from envbuild.launch.script_call import script_call
from envbuild.launch.submit import run

pytestmark = pytest.mark.unit


def test_the_arguments_of_the_shell_have_no_value_of_the_script(tmp_path: Path) -> None:
    command, env = script_call('export TOKEN=\'a b"$HOME\'\nread line\nprintf \'%s|%s\' "$TOKEN" "$line"; exit 7\n')
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert "TOKEN" not in Path(f"/proc/{process.pid}/cmdline").read_text()
        output, _ = process.communicate("input\n")
    assert (process.returncode, output) == (7, 'a b"$HOME|input')


def test_programs_of_the_script_have_its_variables_and_not_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("text", "the user's")
    command, env = script_call(f"export TOKEN=x\nenv > {tmp_path}/env\nfalse\n")
    assert run(command, 0, env) == 1
    lines = (tmp_path / "env").read_text().splitlines()
    assert {"TOKEN=x", "text=the user's"} < set(lines)
    assert not any(line.startswith("ENVBUILD_SCRIPT") for line in lines)
