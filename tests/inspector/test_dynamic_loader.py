"""The loader's rules, on trees that are dictionaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.inspector import dynamic_loader, elf
from envbuild.inspector.dynamic_loader import Loader, read_cache
from tests.support.binaries import make_cache, make_elf

pytestmark = pytest.mark.unit

SITE = "/opt/venv/lib/python3.13/site-packages"


def loader(
    files: Mapping[str, Mapping[str, object]],
    links: Mapping[str, str] | None = None,
    cache: Sequence[tuple[str, str]] = (),
    library_path: Sequence[str] = (),
) -> Loader:
    elves = {path: elf.parse(make_elf(**options)) for path, options in files.items()}  # type: ignore[arg-type]
    return Loader(elves, links or {}, cache, library_path, [SITE])


def test_order_rpath_environment_runpath_cache_default() -> None:
    folders = ["/rpath", "/environment", "/runpath", "/cached", "/usr/lib"]
    for first in range(len(folders)):
        there = {f"{folder}/liba.so.1": {} for folder in folders[first:]}
        cache = [("liba.so.1", "/cached/liba.so.1")]
        with_rpath = loader(
            {"/bin/x": {"needed": ["liba.so.1"], "rpath": "/rpath"}, **there}, {}, cache, ["/environment"]
        )
        places = [folder for folder in folders[first:] if folder != "/runpath"]
        assert with_rpath.direct("/bin/x", "liba.so.1") == f"{places[0]}/liba.so.1"
        both = {"needed": ["liba.so.1"], "rpath": "/rpath", "runpath": "/runpath"}
        places = [folder for folder in folders[first:] if folder != "/rpath"]  # DT_RUNPATH switches DT_RPATH off
        found = loader({"/bin/x": both, **there}, {}, cache, ["/environment"]).direct("/bin/x", "liba.so.1")
        assert found == f"{places[0]}/liba.so.1"


def test_origin_and_links() -> None:
    tree = loader(
        {
            f"{SITE}/torch/lib/libtorch.so": {
                "needed": ["libnccl.so.2", "libx.so"],
                "runpath": "$ORIGIN/../../nvidia/nccl/lib:${ORIGIN}",
            },
            f"{SITE}/nvidia/nccl/lib/libnccl.so.2.30": {},
            "/usr/lib/x86_64-linux-gnu/libx.so.1": {},
        },
        {
            f"{SITE}/nvidia/nccl/lib/libnccl.so.2": "libnccl.so.2.30",
            "/lib": "usr/lib",
            f"{SITE}/torch/lib/libx.so": "/lib/x86_64-linux-gnu/libx.so.1",
        },
    )
    path = f"{SITE}/torch/lib/libtorch.so"
    assert tree.direct(path, "libnccl.so.2") == f"{SITE}/nvidia/nccl/lib/libnccl.so.2.30"
    assert tree.direct(path, "libx.so") == "/usr/lib/x86_64-linux-gnu/libx.so.1"


def test_dotdot_is_resolved_from_the_target_of_a_link() -> None:
    tree = loader({"/a/b/lib.so": {}, "/lib.so": {"needed": ["l"]}}, {"/link": "/a/b/c"})
    assert tree.canonical("/link/../lib.so") == "/a/b/lib.so"
    assert tree.canonical("/link/.././../..//../lib.so") == "/lib.so"


def test_a_link_loop_has_no_target() -> None:
    tree = loader({"/bin/x": {"needed": ["liba.so"]}}, {"/usr/lib/liba.so": "libb.so", "/usr/lib/libb.so": "liba.so"})
    assert tree.resolve()["/bin/x"] == {"liba.so": ("missing", "")}


def test_a_library_of_another_machine_is_skipped() -> None:
    tree = loader(
        {
            "/bin/x": {"needed": ["liba.so"]},
            "/usr/lib/x86_64-linux-gnu/liba.so": {"machine": 183},
            "/usr/lib/liba.so": {"bits": 32, "machine": 3},
            "/usr/lib64/liba.so": {},
        }
    )
    assert tree.direct("/bin/x", "liba.so") == "/usr/lib64/liba.so"


def test_rpath_is_inherited_and_runpath_is_not() -> None:
    def tree(kind: str) -> dict[str, tuple[str, str]]:
        files = {
            "/opt/bin/x": {"needed": ["liba.so"], kind: "/opt/lib"},
            "/opt/lib/liba.so": {"needed": ["libb.so"]},
            "/opt/lib/libb.so": {},
        }
        return loader(files).resolve()["/opt/lib/liba.so"]

    assert tree("rpath") == {"libb.so": ("loader", "/opt/lib/libb.so")}
    assert tree("runpath") == {"libb.so": ("missing", "")}


def test_wheels_are_loaded_before_by_python_but_only_for_wheels() -> None:
    files = {
        f"{SITE}/torch/lib/libc10.so": {"soname": "libc10.so"},
        f"{SITE}/deepspeed/ops/fused_adam_op.so": {"needed": ["libc10.so", "libcudart.so.12"]},
        f"{SITE}/nvidia/cu13/lib/libcudart.so.13": {"soname": "libcudart.so.13"},
        "/opt/ucc/lib/libucc.so.1": {"needed": ["libc10.so"]},
    }
    found = loader(files).resolve()
    assert found[f"{SITE}/deepspeed/ops/fused_adam_op.so"] == {
        "libc10.so": ("preload", f"{SITE}/torch/lib/libc10.so"),
        "libcudart.so.12": ("missing", ""),
    }
    assert found["/opt/ucc/lib/libucc.so.1"] == {"libc10.so": ("missing", "")}


names = st.text("abcdef./-", min_size=1, max_size=12)


@given(st.lists(st.tuples(names, names, st.booleans()), max_size=8), st.booleans())
def test_cache_is_read_in_order_and_newer_cpus_come_last(entries: list[tuple[str, str, bool]], old_table: bool) -> None:
    expected = [(soname, path) for soname, path, special in sorted(entries, key=lambda entry: entry[2])]
    assert read_cache(make_cache(entries, old_table)) == expected


@given(st.integers(0, 200))
def test_a_truncated_cache_is_refused(length: int) -> None:
    data = make_cache([("liba.so.1", "/usr/lib/liba.so.1", False)] * 3)
    with pytest.raises(ValueError):
        read_cache(data[: min(length, len(data) - 1)])


def test_more_folders_within_each_other_than_linux_follows() -> None:
    assert loader({}, {"/l": "a/" * 20_000}).canonical("/l/x") == ""


def test_a_cache_that_names_one_string_many_times_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_cache([("libx.so", "/usr/lib/libx.so", False)] * 3)
    assert len(read_cache(data)) == 3
    monkeypatch.setattr(dynamic_loader, "MAX_STRINGS", 60)
    with pytest.raises(ValueError, match="more than 60 bytes"):
        read_cache(data)
