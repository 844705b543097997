"""Code that decides the bytes of a layer is pinned: units in a store outlive the envbuild that built them."""

from __future__ import annotations

import ast
import hashlib
import json
from pathlib import Path

import pytest

from envbuild.build.engines import deb, prepare_inputs
from envbuild.build.engines.embedded import mounts
from envbuild.build.plan.units import FIXED, MODEL
from envbuild.build.steps import INPUTS
from envbuild.core.fixed_time import TIME
from envbuild.oci.layers import clean, layer, lower_view, scan
from envbuild.oci.tar import member, writer
from envbuild.squashfs.pack.writer import pack_name

pytestmark = pytest.mark.unit

# When this differs: would a unit that a store already has get other bytes now? Then raise MODEL in
# envbuild/build/plan/units.py (its key changes, and with it tests/golden). Otherwise only the digest changes here.
PINNED = (3, "7e369dc804468965a112913f7b173c824e20bda1b3febecbdbd56c8f0c6f7b12")


def code(path: Path) -> str:
    """Return the text of a module without docstrings, lines that are only comments, and empty lines."""
    text = path.read_text()
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            skipped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = [line.rstrip() for number, line in enumerate(text.splitlines(), 1) if number not in skipped]
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))


def decides() -> str:
    """sha256 of what decides the bytes of a layer, and of its pack, beside the unit itself."""
    modules = (clean, scan, lower_view, member, writer, layer, deb)
    facts = {
        "code": {module.__name__: code(Path(str(module.__file__))) for module in modules},
        "clean": [list(clean.REMOVE), sorted(clean.KEEP)],
        "environment": [FIXED, INPUTS],
        "seen in a unit": [prepare_inputs.APT_CONF, TIME, mounts.HOSTS],
        "pack": pack_name("").rpartition(".")[2],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def test_code_that_decides_the_bytes_of_a_layer_is_pinned_to_the_model() -> None:
    assert (MODEL, decides()) == PINNED, "raise MODEL if a layer's bytes change, then write the new pair here"


def test_comments_do_not_count(tmp_path: Path) -> None:
    one, two, other = (tmp_path / name for name in ("one.py", "two.py", "other.py"))
    one.write_text('"""Doc."""\n\nX = 1\n')
    two.write_text('"""Other doc,\n\nlonger."""\n# why\nX = 1\n')
    other.write_text('"""Doc."""\n\nX = 2\n')
    assert code(one) == code(two) != code(other)
