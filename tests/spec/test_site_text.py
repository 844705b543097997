"""Site files in every form of writing make a folder a project: one may have a policy of signatures."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.spec.project_folder import is_project
from envbuild.spec.site_text import is_site
from tests.support.site_forms import SITES
from tests.support.time_limit import ends_within

pytestmark = pytest.mark.unit
FOREIGN = [
    b"", b"title: mine\n", b"db:\n  schema: 1\n", b"db: &x {schema: 2}\nother: *x\n", b"text: the schema: 1\n",
    b"a: {b: 1, schema: 1}\n", b"- schema: 1\n", b"{{ schema }}: 2\n", b"\xff\xfe\x00",
    b"# schema: 1\n", b"a: !!python/name:x.y\nb:\n  schema: 1\n", b"- hosts: all\n  vars:\n    schema: 1\n",
    b"a: [\n# schema: 1\n", b"a: schema\n", b"a: {schema: 1}\nb: *x\n", b"schema\n",
]  # fmt: skip


@pytest.mark.parametrize("content", SITES)
def test_a_site_file_makes_a_project(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_bytes(content)
    assert is_site(content) and is_project(tmp_path)


@pytest.mark.parametrize("content", FOREIGN)
def test_a_file_of_another_program_does_not(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_bytes(content)
    assert not is_site(content) and not is_project(tmp_path)


def test_a_file_whose_key_comes_late_or_that_is_no_file(tmp_path: Path) -> None:
    for key in (b"schema: 1\n", b'"schema": 1\n'):
        (tmp_path / "site.yaml").write_bytes(b"# long\n" * 20_000 + key)
        assert is_project(tmp_path)
    for text in (b'"schem\\x61": 1\n', b"? schema # c\n: 1\n", b"schema" + b" " * 17 + b": 1\n"):
        (tmp_path / "site.yaml").write_bytes(text)
        assert is_project(tmp_path), text
    (tmp_path / "site.yaml").unlink()
    (tmp_path / "site.yaml").mkdir()
    assert not is_project(tmp_path)


@pytest.mark.parametrize("part", [b",", b"{", b",{ ", b"\n", b"schema ", b"schema: ", b"[", b" "])
def test_a_hostile_file_takes_no_time(part: bytes) -> None:
    """Another user can put it into a folder above the current one."""
    with ends_within(30):
        is_site(b"x: [schema\n" + part * ((1 << 20) // len(part)) + b"!")
        is_site(b"x: [schema:\n" + part * ((1 << 20) // len(part)) + b"!")
