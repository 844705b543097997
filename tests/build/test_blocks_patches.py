"""Patches of recipes: applied as they are, or refused with the file, the hunk and the version."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from envbuild.build.blocks.blocks import autotools, cmake, python_wheel, source
from envbuild.build.blocks.hpccm import hpccm_target, steps
from envbuild.build.blocks.patches import apply_patches
from envbuild.build.steps import WORK
from envbuild.core.errors import SpecError
from envbuild.spec.recipe import Git, PipSource
from tests.support.tools import require_tools

pytestmark = pytest.mark.unit

SOURCE = "one\ntwo\nthree\nfour\nfive\n"
PATCH = """\
--- a/setup.py
+++ b/setup.py
@@ -1,5 +1,5 @@
 one
 two
-three
+3\t'quoted' $HOME `x` \\n %s
 four
 five
"""


@pytest.fixture
def patch(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.patch"
    path.write_text(PATCH)
    return path


def run(patches: list[Path], folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Apply patches to a source with one file."""
    require_tools("patch")
    (folder / "source").mkdir()
    (folder / "source/setup.py").write_text(text)
    commands = " && ".join(apply_patches(patches, "github:demo/demo v1.2")).replace(WORK, f"{folder}/work")
    return subprocess.run(
        ["/bin/sh", "-c", commands], cwd=folder / "source", capture_output=True, text=True, check=False
    )


def test_a_patch_is_applied_as_it_is(patch: Path, tmp_path: Path) -> None:
    result = run([patch], tmp_path, SOURCE)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "source/setup.py").read_text() == "one\ntwo\n3\t'quoted' $HOME `x` \\n %s\nfour\nfive\n"


@pytest.mark.parametrize("text", [SOURCE.replace("two", "2"), SOURCE.replace("three", "3"), PATCH])
def test_a_patch_that_fits_nearly_or_not_is_refused(patch: Path, tmp_path: Path, text: str) -> None:
    """With its default fuzz, patch(1) applies the first."""
    result = run([patch], tmp_path, text)
    assert result.returncode == 1
    assert "the patch numbers.patch does not apply to github:demo/demo v1.2" in result.stderr
    assert "patching file setup.py" in result.stdout and "Hunk #1 FAILED" in result.stdout


def test_a_patch_that_is_applied_already_is_refused(patch: Path, tmp_path: Path) -> None:
    assert run([patch, patch], tmp_path, SOURCE).returncode == 1


def test_the_text_of_a_patch_is_part_of_every_block(patch: Path) -> None:
    git = Git("demo", "github:demo/demo", "1" * 40, "v1.2")
    sdist = PipSource("demo-kernels", "1.2")
    with hpccm_target("amd64"):
        for block in (
            source(git, patches=[patch]),
            autotools(git, "/opt/demo", patches=[patch]),
            cmake(git, "/opt/demo", patches=[patch]),
            python_wheel("demo", git=git, patches=[patch]),
            python_wheel(sdist, patches=[patch]),
        ):
            text = "\n".join(step.command for step in steps(block))
            unpacked, applied = text.index("tar "), text.index("patch -p1 --fuzz=0")
            assert unpacked < applied and "+3\t" in text
            assert all(text.find(word) == -1 or text.find(word) > applied for word in ("configure ", "build --wheel"))
            assert (
                f"does not apply to {sdist.requirement if 'demo_kernels' in text or 'iname' in text else git.origin}"
                in text
            )


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("flash-attn", "flash_attn-2.5.6.tar.gz"),
        ("antlr4-python3-runtime", "antlr4-python3-runtime-4.8.tar.gz"),
        ("pyyaml", "PyYAML-5.3.tar.gz"),
        ("zope.interface", "zope_interface-7.0.tar.gz"),
    ],
)
def test_an_sdist_is_found_by_the_name_of_its_project(name: str, file: str, tmp_path: Path) -> None:
    (tmp_path / file).touch()
    (tmp_path / f"{name}-extras-1.0.tar.gz").touch()
    word = PipSource(name).found.replace("/run/envbuild/sdists/", f"{tmp_path}/")
    found = subprocess.run(["/bin/sh", "-c", f"echo {word}"], capture_output=True, text=True, check=True).stdout
    assert found.strip() == str(tmp_path / file)
    assert PipSource(name, "1.0").requirement == f"{name}==1.0" and PipSource(name).requirement == name


@pytest.mark.parametrize(
    "sign", ["\f", "\v", "\x1c", "\x85", "\u2028", "\x1b", "\x7f", "\u202e", "\r", "\\0101\f", "ü\f%s'"]
)
def test_no_character_of_a_patch_is_changed(tmp_path: Path, sign: str) -> None:
    """str.splitlines takes some of them for the end of a line."""
    patch = tmp_path / "signs.patch"
    patch.write_bytes(PATCH.replace("+3", f"+{sign}3{sign}").encode())
    result = run([patch], tmp_path, SOURCE)
    assert result.returncode == 0, result.stderr
    made = (tmp_path / "source/setup.py").read_bytes().decode()
    assert made == f"one\ntwo\n{sign}3{sign}\t'quoted' $HOME `x` \\n %s\nfour\nfive\n"
    command = apply_patches([patch], "demo")[1]
    assert command.isascii() or sign[0] == "ü"
    assert all(character.isprintable() for character in command if character not in "\n\t")


@pytest.mark.parametrize("header", ["\n", "\r\n"])
def test_carriage_returns_of_a_patch_remain(tmp_path: Path, header: str) -> None:
    """git writes the headers of such a patch without them; an editor adds them."""
    lines = PATCH.splitlines()
    patch = tmp_path / "dos.patch"
    patch.write_bytes(
        "".join([*(line + header for line in lines[:3]), *(line + "\r\n" for line in lines[3:])]).encode()
    )
    result = run([patch], tmp_path, "")
    assert result.returncode == 1
    (tmp_path / "source/setup.py").write_bytes(SOURCE.replace("\n", "\r\n").encode())
    commands = " && ".join(apply_patches([patch], "demo")).replace(WORK, f"{tmp_path}/work")
    subprocess.run(["/bin/sh", "-c", commands], cwd=tmp_path / "source", check=True)
    made = (tmp_path / "source/setup.py").read_bytes()
    assert made == b"one\r\ntwo\r\n3\t'quoted' $HOME `x` \\n %s\r\nfour\r\nfive\r\n"


def test_a_patch_that_no_command_can_contain(tmp_path: Path) -> None:
    """Linux refuses an argument of 128 KiB, with "Argument list too long"."""
    git = Git("demo", "github:demo/demo", "1" * 40, "v1.2")
    patch = tmp_path / "large.patch"
    with hpccm_target("amd64"):
        patch.write_text(PATCH + f"# {'x' * 80}\n" * 1300)
        (step,) = steps(source(git, patches=[patch]))
        subprocess.run(["/bin/sh", "-n", "-c", step.command], check=True)
        patch.write_text(PATCH + f"# {'x' * 80}\n" * 1400)
        with pytest.raises(
            SpecError, match=r"'demo: the source' have 1\d{5} bytes; one step has at most 130048"
        ) as caught:
            steps(source(git, patches=[patch]))
    assert "patches" in caught.value.hint
