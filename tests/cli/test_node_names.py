"""The list of nodes of ``envbuild doctor --gather``, as Slurm writes one."""

from __future__ import annotations

import pytest

from envbuild.cli.node_names import node_names
from envbuild.core.errors import SpecError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ""),
        ("a,b", "a b"),
        ("n[01-03,07],login", "n01 n02 n03 n07 login"),
        ("rack[1-2]-x,n[9-11]", "rack1-x rack2-x n9 n10 n11"),
        ("n1,n1", "n1"),
    ],
)
def test_names_are_expanded(text: str, names: str) -> None:
    assert node_names(text) == tuple(names.split())


@pytest.mark.parametrize("text", ["n[1-", "n[3-1]", "n[a]", ",", "n[1-99999999]", "n[1]]", "a b"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(SpecError):
        node_names(text)
