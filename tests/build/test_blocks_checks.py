"""Verify lines that several recipes have: CUDA code for the target, and programs that a shell writes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from envbuild.build.blocks import checks
from envbuild.build.blocks.checks import only_this_gpu
from tests.support.recipes import image, matches

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("listing", "right"),
    [
        ("/x/a.so\nELF file    1: a.1.sm_90.cubin\nELF file    2: a.2.sm_90.cubin\n", True),
        ("/x/a.so\nELF file    1: a.1.sm_90a.cubin", True),
        ("/x/a.so\nELF file    1: a.1.sm_90.cubin\n/x/b.so\nELF file    1: b.1.sm_90.cubin\n", True),
        ("/x/a.so\nELF file    1: a.1.sm_90.cubin\nELF file    2: a.2.sm_80.cubin\n", False),
        ("/x/a.so\nELF file    1: a.1.sm_90.cubin\n/x/b.so\n", False),
        ("/x/a.so\nELF file    1: a.1.sm_90.cubin\nPTX file    1: a.1.sm_90.ptx\n", False),
        ("/x/a.so\n", False),
        ("", False),
    ],
)
def test_code_for_the_target_and_nothing_else(listing: str, right: bool) -> None:
    module, program = checks.cubins("x", ("a.b",), image()), only_this_gpu("x", ("/opt/x/bin/*",), image())
    assert "/opt/venv/lib/python3.13/site-packages/a/b.*so" in module.command and "/opt/x/bin/*" in program.command
    assert [matches(check, listing) for check in (module, program)] == [right, right]


@pytest.mark.parametrize("words", [{"show": "x.y"}, {"expect": "^1$"}])
def test_what_an_import_prints_is_compared_with_a_pattern_of_its_own(words: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="x: show and expect require each other"):
        checks.imports("x", ("x",), **words)
    assert matches(checks.imports("x", ("x",)), "imported\n")


def test_characters_special_to_shell_and_containerfile_survive(tmp_path: Path) -> None:
    text = '# not a comment\n\n  $HOME `id` \\ it\'s\n%s \\n "x" \\\n'
    command = checks.written(str(tmp_path / "a file"), text)
    assert not any(line.lstrip().startswith("#") for line in command.splitlines())  # Docker drops such lines
    subprocess.run(["/bin/sh", "-c", command], check=True)
    assert (tmp_path / "a file").read_text() == text
