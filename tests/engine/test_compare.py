"""`make --check`: units built twice, and the first file that differs is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from envbuild.build.plan.units import Input, Product, Unit
from envbuild.build.reproducibility import compare_units
from envbuild.core.errors import BuildError
from envbuild.core.store.store import Store, UnitRecord
from tests.support import tiny_root as kit

pytestmark = pytest.mark.engine


def twice(store: Store, *units: Unit) -> None:
    """Build, build again, compare."""
    plan = kit.plan(store, *units)
    kit.build(store, *units)
    first: dict[str, UnitRecord | None] = {unit: store.unit(key) for unit, key in plan.keys().items()}
    kit.build(store, *units, rebuild=True)
    compare_units(plan, first, store)


def test_equal_builds_have_no_findings(store: Store) -> None:
    twice(store, kit.unit("same", "mkdir /opt/x; echo $SOURCE_DATE_EPOCH > /opt/x/file"))


def test_a_unit_of_a_cache_with_the_same_bytes_is_equal(store: Store) -> None:
    """Its record names the cache, and that of its layer too."""
    unit = kit.unit("same", "mkdir /opt/x")
    plan = kit.plan(store, unit)
    kit.build(store, unit)
    first: dict[str, UnitRecord | None] = {}
    for name, key in plan.keys().items():
        found = store.unit(key)
        assert found and found.layer
        layer = replace(found.layer, caches=("team",))
        first[name] = replace(found, layer=layer, caches=("team",), source="team@sha256:1")
    compare_units(plan, first, store)


@pytest.mark.parametrize(
    ("command", "difference"),
    [
        ("mkdir /opt/x; cat /proc/sys/kernel/random/uuid > /opt/x/file", "opt/x/file differs in content"),
        ("mkdir /opt/x; touch /opt/x/$(cat /proc/sys/kernel/random/uuid)", "is only in the"),
    ],
)
def test_the_first_file_that_differs_is_named(store: Store, command: str, difference: str) -> None:
    with pytest.raises(BuildError, match="unit bad is not reproducible") as error:
        twice(
            store,
            kit.unit("good", "mkdir /opt/a"),
            kit.unit("bad", command),
            kit.unit("above", "true", lowers=("base", "bad")),
        )
    assert difference in error.value.message


def test_a_wheel_that_differs_is_named(store: Store) -> None:
    command = "cat /proc/sys/kernel/random/uuid > /opt/n; read name < /opt/n; touch /run/envbuild/out/p-$name.whl"
    unit = kit.unit("wheel", command, product=Product.WHEEL, in_image=False)
    with pytest.raises(BuildError, match=r"the wheel is called p-.*\.whl once and p-"):
        twice(store, unit, kit.unit("user", "true", inputs=(Input("kernels", units=("wheel",)),)))
