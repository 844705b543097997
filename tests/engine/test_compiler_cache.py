"""The compiler cache: the same layers with it and without it, and less to compile after a change or a failure."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.build.engines.embedded import compiler_cache
from envbuild.build.plan.units import Input, Unit
from envbuild.build.steps import Step
from envbuild.core.console import SilentReporter
from envbuild.core.errors import BuildError
from envbuild.core.store.gc import collect
from envbuild.core.store.store import Store, UnitRecord
from envbuild.core.store.usage import usage
from tests.support import tiny_root as kit
from tests.support.compiled_unit import FILES, compiling, toolchain
from tests.support.engine_fixtures import Run
from tests.support.tools import require_tools

pytestmark = pytest.mark.engine


@pytest.fixture(autouse=True)
def needed() -> None:
    require_tools("ccache", "gcc", "ldd")


def build(store: Store, unit: Unit, **options: bool) -> str:
    """Return the layer of `unit`."""
    return kit.build(store, toolchain(store), unit, **options).layers[-1].diff_id


def counts(store: Store) -> dict[str, int]:
    """Return ccache's statistics of all caches of the store."""
    found: dict[str, int] = {}
    for folder in (store.own / "ccache").glob("*/content"):
        command = ["ccache", "--print-stats"]
        text = subprocess.run(
            command, env={**os.environ, "CCACHE_DIR": str(folder)}, capture_output=True, text=True, check=True
        ).stdout
        for name, number in re.findall(r"^(\w+)\t(\d+)$", text, re.MULTILINE):
            found[name] = found.get(name, 0) + int(number)
    return found


def hits(store: Store) -> int:
    found = counts(store)
    return found["direct_cache_hit"] + found["preprocessed_cache_hit"]


def test_the_layer_is_the_same_with_the_cache_and_without(store: Store, tmp_path: Path) -> None:
    plain = Store.open(tmp_path / "plain")
    without = build(plain, compiling(plain), compiler_cache=False)
    assert not (plain.own / "ccache").exists()
    assert build(store, compiling(store)) == without
    assert hits(store) == 0 and counts(store)["cache_miss"] == 3
    again = build(store, compiling(store, "echo other > /opt/out/more"))
    assert hits(store) == 3  # another unit of the same sources
    assert again != without == build(store, compiling(store, "true"))
    for diff_id in (without, again):
        names = [path.name for path in (store if diff_id == again else plain).layer_tree(diff_id).rglob("*")]
        assert "a.c.o" in names and not any("envbuild" in name or "ccache" in name for name in names)


def test_a_change_compiles_what_changed(store: Store, tmp_path: Path) -> None:
    build(store, compiling(store))
    found = build(
        store, compiling(store, flags="-DA=2")
    )  # an option is part of what is compared: two files do not use it
    assert 0 < hits(store) < 3 and counts(store)["cache_miss"] > 3
    plain = Store.open(tmp_path / "plain")
    assert found == build(plain, compiling(plain, flags="-DA=2"), compiler_cache=False)


def test_what_a_source_writes_into_the_cache_does_not_reach_another_version(store: Store) -> None:
    """A malicious version could leave objects that a later one gets from the cache."""
    build(store, compiling(store))
    changed = {**FILES, "b.c": "int b(void) { return 4; }\n"}
    build(store, compiling(store, files=changed))
    assert hits(store) == 0 and len(list((store.own / "ccache").iterdir())) == 2


def test_another_version_of_what_the_build_requires_has_a_cache_of_its_own(store: Store) -> None:
    """A malicious wheel that a build requires runs in the same box as the compiler: it could configure the cache to
    replace each source."""

    def requiring(text: str) -> Unit:
        wheel = Input("python", "files", (kit.add(store, "setuptools.sh", text.encode()),))
        unit = compiling(store)
        return replace(
            unit,
            inputs=(*unit.inputs, wheel),
            steps=(Step("sh /run/envbuild/python/setuptools.sh", ""), *unit.steps),
        )

    folder = "/run/envbuild/ccache/cache"
    script = f"printf 'recache=true\nrun_second_cpp=true\nprefix_command={folder}/cc\n' > {folder}/ccache.conf"
    script += f"; printf '#!/bin/sh\nexec \"$@\" -DA=666\n' > {folder}/cc; chmod 755 {folder}/cc"
    build(store, requiring(script))
    found = build(store, requiring("true"))
    assert hits(store) == 0 and len(list((store.own / "ccache").iterdir())) == 2
    assert found == build(store, requiring("true # other"), compiler_cache=False)


def test_every_input_of_a_unit_decides_its_cache(store: Store) -> None:
    unit = compiling(store)
    wheels = Input("kernels", "files", units=("y",))
    layer = UnitRecord("", "")
    changed = [
        (unit, {}),
        (replace(unit, inputs=(*unit.inputs, Input("more", "text", texts=(("a.py", "1"),)))), {}),
        (replace(unit, inputs=(*unit.inputs, Input("more", "text", texts=(("a.py", "2"),)))), {}),
        (replace(unit, inputs=(*unit.inputs, Input("tools", "files", (kit.add(store, "a", b"1"),)))), {}),
        (replace(unit, inputs=(*unit.inputs, Input("tools", "files", (kit.add(store, "b", b"1"),)))), {}),
        (replace(unit, inputs=(*unit.inputs, wheels)), {"y": replace(layer, wheels=(("y.whl", "a" * 64),))}),
        (replace(unit, inputs=(*unit.inputs, wheels)), {"y": replace(layer, wheels=(("y.whl", "b" * 64),))}),
    ]
    folders = set()
    for each, records in changed:
        cache = compiler_cache.unit_cache(each, {"base": layer, "root-build-x": layer, **records}, store)
        assert cache is not None
        folders.add(cache["folder"])
    assert len(folders) == len(changed)


def test_a_unit_that_failed_continues(store: Store) -> None:
    with pytest.raises(BuildError):
        build(store, compiling(store, "false"))
    build(store, compiling(store))
    assert hits(store) == 3 and counts(store)["cache_miss"] == 3


def test_another_compiler_has_a_cache_of_its_own(store: Store) -> None:
    build(store, compiling(store))
    other = toolchain(store)
    more = kit.unit("root-build-x", other.steps[0].command, "echo 2 > /etc/version", inputs=other.inputs)
    kit.build(store, more, compiling(store))
    assert hits(store) == 0 and len(list((store.own / "ccache").iterdir())) == 2


def test_nvcc_names_itself_in_front_of_the_cache(store: Store) -> None:
    """nvcc prints the name of its file up to the first dot, and CMake identifies it by that line."""
    script = '#!/bin/sh\nname=${0##*/}; echo "${name%%.*}: NVIDIA (R) Cuda compiler driver"\n'
    other = toolchain(store)
    texts = (("nvcc", script),)
    nvcc = "mkdir -p /opt/cuda/bin; cp /run/envbuild/toolkit/nvcc /opt/cuda/bin/nvcc; chmod 755 /opt/cuda/bin/nvcc"
    inputs = (*other.inputs, Input("toolkit", "text", texts=texts))
    below = kit.unit("root-build-x", other.steps[0].command, nvcc, inputs=inputs)
    identified = 'case "$(/opt/cuda/bin/nvcc --version)" in *"nvcc: NVIDIA (R) Cuda"*) ;; *) exit 1 ;; esac'
    kit.build(store, below, compiling(store, identified))


def test_a_second_build_for_a_comparison_compiles(store: Store) -> None:
    build(store, compiling(store))
    before = counts(store)
    build(store, compiling(store), rebuild=True)
    assert counts(store) == before


def test_the_store_counts_and_removes_caches(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    build(store, compiling(store))
    assert usage(store)["ccache"] > 0
    (cache,) = (store.own / "ccache").iterdir()
    assert cache.stat().st_mode & 0o777 == 0o700
    assert collect(store, SilentReporter(), dry_run=False, everything=False)[0] is not None and cache.exists()
    monkeypatch.setattr(compiler_cache, "LIMIT", 0)
    compiler_cache.trim_caches([compiling(store)], store)
    assert not cache.exists()
    build(store, compiling(store, "true"))
    collect(store, SilentReporter(), dry_run=False, everything=True)
    assert usage(store)["ccache"] < 10_000


def test_a_machine_without_ccache_builds_as_ever(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_cache, "find_program", lambda: ())
    build(store, compiling(store))
    assert not (store.own / "ccache").exists()


def test_the_cache_of_a_user_with_subordinate_ids(store: Store, scratch: Path, as_other: Run) -> None:
    for _ in range(2):
        theirs = as_other("compiled", scratch / "cached")
        (scratch / "cached/units").chmod(0o700)
        for record in (scratch / "cached/units").iterdir():
            if json.loads(record.read_text())["unit"] == "x":
                record.unlink()
    assert theirs["layers"][-1] == build(store, compiling(store), compiler_cache=False)
    found = counts(Store(scratch / "cached"))
    assert (found["cache_miss"], found["direct_cache_hit"]) == (3, 3)


@pytest.mark.parametrize("step", ["chown 5:5 {0}; chmod 700 {0}", "chmod 0 {0}"])
def test_a_step_cannot_make_a_cache_unusable(step: str, store: Store) -> None:
    """Neither for the next unit of the same sources, nor for `store gc`."""
    build(store, compiling(store, step.format("/run/envbuild/ccache/cache")))
    build(store, compiling(store, "true # again"))
    assert counts(store)["cache_miss"] == 3
    build(store, compiling(store, step.format("/run/envbuild/ccache/cache") + "; true"))
    collect(store, SilentReporter(), dry_run=False, everything=True)
    assert not list((store.own / "ccache").iterdir())
