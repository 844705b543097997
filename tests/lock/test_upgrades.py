"""Upgrades of single packages: what else may change, and what the hint for an unknown name states."""

from __future__ import annotations

import pytest

from envbuild.core.errors import ConflictError
from envbuild.lock.diff import Difference
from envbuild.lock.upgrades import check_only_moved, upgrade_hint

pytestmark = pytest.mark.unit

MOVED = Difference("python", "one", ("1.0",), ("2.0",))
ADDED = Difference("python", "three", (), ("1.0",))
REMOVED = Difference("python", "two", ("1.0",), ())


def test_what_an_upgraded_package_requires_may_come_and_go() -> None:
    check_only_moved("k", [MOVED, ADDED, REMOVED], frozenset({"one"}))


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (Difference("python", "two", ("1.0",), ("1.1",)), "two 1.0 → 1.1"),
        (Difference("debian", "hello", ("1",), ("1",)), "hello 1: other content"),
        (Difference("source", "x.tar", ("file:a",), ("file:b",)), "source x.tar file:a → file:b"),
    ],
)
def test_another_package_that_would_change_is_refused(other: Difference, line: str) -> None:
    with pytest.raises(ConflictError) as caught:
        check_only_moved("k", [MOVED, other, ADDED], frozenset({"one"}))
    assert str(caught.value) == (
        f"{line} would change as well, and --upgrade-package moves one package alone\n"
        "hint: envbuild lock k --upgrade one"
    )


def test_the_hint_has_the_option_of_the_caller() -> None:
    packages = {"transformer-engine": "transformer-engine-torch"}
    found = upgrade_hint("transformer-engine", packages.values(), packages, "--upgrade-package")
    assert found == (
        "the package of transformer-engine is transformer-engine-torch: --upgrade-package transformer-engine-torch"
    )
