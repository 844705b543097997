"""The cache of compiled matrices: its key, damage, where it is, and what goes."""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import SpecError
from envbuild.matrix import fact_files
from envbuild.matrix.facts import cache as cached
from envbuild.matrix.facts import compile as compile_module
from envbuild.matrix.facts import load
from envbuild.matrix.facts.clauses import program_of
from envbuild.matrix.facts.compile import load_fact_table
from envbuild.matrix.facts.evaluate import guarded_rows
from envbuild.matrix.facts.evidence import evident_pairs
from envbuild.matrix.facts.extension import extend_table
from envbuild.matrix.facts.fact_table import HARD, Caches
from envbuild.matrix.facts.reachability import backing_clauses, bound_values, find_calls
from envbuild.matrix.facts.soft_program import soft_program_of
from tests.support.facts import fact, write

pytestmark = pytest.mark.unit
COMPONENTS: dict[str, Any] = {
    "a": ["1.0", "2.0"],
    "torch": {"values": ["2.9.0", "2.10.0a0+b4e4ee81d3"], "rank": 3, "packages": ["torch", "torch-cpu"]},
    "gpu": {"kind": "name", "values": {"H100": ["H100 SXM"], "A100": []}, "shown": "{value}"},
    "sm": {"kind": "sm", "values": ["9.0"]},
}
FACTS = [
    fact("a.torch", "limits", {"a": "1.0"}, {"torch": ">=2.8"}, question="q", because="“so” it is {a}", hint="no"),
    fact("a.issue", "limits", {"a": "*"}, {"torch": "<2"}, question="q", source="issue"),
    fact("a.gpu", "limits", {"gpu": "!=H100", "a": "*"}, {"sm": {"cubins": ["90a"], "ptx": ["80"]}}, strength="warn"),
    fact("a.one", "limits", {"a": "1.0"}, {"sm": "9.0"}, question="s", strength="disputed"),
    fact("a.two", "limits", {"a": "1.0"}, {"sm": "8.0"}, question="s", strength="disputed"),
]
QUESTIONS = {"q": ["a", "torch"], "s": ["a", "sm"]}


def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "facts", COMPONENTS, FACTS, QUESTIONS)


def entries(cache: Path) -> list[Path]:
    return sorted(cache.iterdir()) if cache.exists() else []


def test_a_matrix_from_the_cache_is_the_same(tmp_path: Path) -> None:
    facts, cache = folder(tmp_path), tmp_path / "cache"
    first = load_fact_table([facts], cache)
    assert len(entries(cache)) == 1
    again = cached.read_entry(entries(cache)[0])
    assert again is not None
    assert again == first == load_fact_table([facts], cache)
    assert program_of(again) == program_of(first)
    assert again.narrowed
    assert again.groups
    assert extend_table(again, {"a": ["7"], "sm": ["8.6"]}) == extend_table(first, {"a": ["7"], "sm": ["8.6"]})
    assert first.digest == load.facts_digest([facts])


def test_a_cached_matrix_answers_without_yaml_and_without_reading_constraints(tmp_path: Path) -> None:
    facts, cache = folder(tmp_path), tmp_path / "cache"
    load_fact_table([facts], cache)
    text = f"""
import sys
from dataclasses import replace
from pathlib import Path
from envbuild.matrix.facts.compile import load_fact_table
from envbuild.matrix.solve.encoding import Request, pick_newest
matrix = load_fact_table([Path({str(facts)!r})], Path({str(cache)!r}))
found = pick_newest(matrix, [Request("", "a", matrix.bit("a", "1.0")), Request("", "gpu", matrix.bit("gpu", "H100"))])
print(matrix.named(found.assignment))
print(sorted(name for name in sys.modules if name in ("yaml", "envbuild.matrix.facts.values",
"envbuild.matrix.facts.load")))
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["{'a': '1.0', 'gpu': 'H100'}", "[]"]


def test_reading_the_facts_is_reported_and_a_cached_matrix_is_not(tmp_path: Path) -> None:
    facts, cache = folder(tmp_path), tmp_path / "cache"
    steps: list[str] = []

    class Recorder(SilentReporter):
        def start(self, task: str, text: str) -> None:
            steps.append(f"start {task}")

        def finish(self, task: str, text: str = "") -> None:
            steps.append(f"finish {task}")

    for _ in range(2):
        load_fact_table([facts], cache, Recorder)
    assert steps == ["start facts", "finish facts"]
    (facts / "wrong.yaml").write_text("schema: 1\nfacts: [{id: 1}]\n")
    with pytest.raises(SpecError):
        load_fact_table([facts], cache, Recorder)
    assert steps == ["start facts", "finish facts"] * 2


def test_facts_that_change_while_they_are_read_are_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if they are as before afterwards, as branches are that are changed twice."""
    facts = folder(tmp_path)
    read = compile_module._read_and_compile

    def read_and_change(*words: Any) -> Any:
        made = read(*words)
        path = min(facts.glob("*.yaml"))
        content = path.read_bytes()
        path.write_bytes(b"")
        path.write_bytes(content)
        return made

    monkeypatch.setattr(compile_module, "_read_and_compile", read_and_change)
    load_fact_table([facts], tmp_path / "cache", SilentReporter)
    assert not list((tmp_path / "cache").glob("*.table"))
    monkeypatch.undo()
    load_fact_table([facts], tmp_path / "cache", SilentReporter)
    assert len(list((tmp_path / "cache").glob("*.table"))) == 1


def test_the_key_follows_every_byte_name_and_folder(tmp_path: Path) -> None:
    facts = folder(tmp_path)
    keys = [cached.cache_key([facts])]
    (facts / "derived").mkdir()
    (facts / "derived" / "more.yaml").write_text("schema: 1\n")
    keys.append(cached.cache_key([facts]))
    (facts / "derived" / "more.yaml").write_text("schema: 1 \n")
    keys.append(cached.cache_key([facts]))
    (facts / "derived" / "more.yaml").rename(facts / "derived" / "other.yaml")
    keys.append(cached.cache_key([facts]))
    facts.rename(tmp_path / "elsewhere")
    keys.append(cached.cache_key([tmp_path / "elsewhere"]))
    assert len(set(keys)) == len(keys)
    assert "" not in keys
    assert cached.cache_key([tmp_path / "elsewhere"]) == keys[-1]


def test_fact_files_are_those_by_hand_then_the_derived_ones(tmp_path: Path) -> None:
    (tmp_path / "derived" / "older").mkdir(parents=True)
    for name in ("b.yaml", "a.yaml", "derived/a.yaml", "notes.txt", "derived/c.yml", "derived/older/d.yaml"):
        (tmp_path / name).write_text("")
    names = [path.relative_to(tmp_path).as_posix() for path in fact_files(tmp_path)]
    assert names == ["a.yaml", "b.yaml", "derived/a.yaml"]


def test_the_key_covers_every_module_that_makes_the_matrix() -> None:
    text = "import sys, envbuild.matrix.facts.compile, envbuild.matrix.facts.load; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    used = [sys.modules[name] for name in done.stdout.split() if name.startswith("envbuild.matrix.")]
    outside = {module.__name__ for module in used if Path(str(module.__file__)) not in cached.code_files()}
    assert len(used) > 10
    assert not outside


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: data[: len(data) // 2], id="truncated"),
        pytest.param(lambda data: data.replace(b"H100", b"H200"), id="changed"),
        pytest.param(lambda data: b"\xff" + data, id="not-text"),
        pytest.param(lambda data: whole(marshal.dumps([])), id="other-shape"),
        pytest.param(
            lambda data: whole(marshal.dumps({"atoms": [()], "rows": [()], "questions": []})), id="lists-too-short"
        ),
        pytest.param(lambda data: whole(data.partition(b"\n")[2].replace(b"kind", b"mind")), id="other-keys"),
    ],
)
def test_a_damaged_entry_is_made_again(tmp_path: Path, damage: Any) -> None:
    facts, cache = folder(tmp_path), tmp_path / "cache"
    first = load_fact_table([facts], cache)
    (entry,) = entries(cache)
    good = entry.read_bytes()
    entry.write_bytes(damage(good))
    assert cached.read_entry(entry) is None
    assert load_fact_table([facts], cache) == first
    assert entry.read_bytes() == good


@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_only_a_regular_file_is_read(kind: str, tmp_path: Path) -> None:
    facts, cache = folder(tmp_path), tmp_path / "cache"
    first = load_fact_table([facts], cache)
    (entry,) = entries(cache)
    entry.unlink()
    os.mkfifo(entry) if kind == "fifo" else entry.symlink_to("/dev/zero")
    assert cached.read_entry(entry) is None
    assert load_fact_table([facts], cache) == first and entry.is_file() and not entry.is_symlink()


def whole(body: bytes) -> bytes:
    """Return an entry whose checksum is right."""
    return cached.checksum(body) + b"\n" + body


def test_a_cache_that_cannot_be_written_is_not_used(tmp_path: Path) -> None:
    facts = folder(tmp_path)
    (tmp_path / "file").write_text("")
    assert load_fact_table([facts], tmp_path / "file" / "cache").values
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "at-all")
    assert load_fact_table([facts], tmp_path / "dangling").values
    assert not (tmp_path / "nowhere").exists()


def test_the_cache_is_where_the_user_has_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = folder(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    load_fact_table([facts])
    assert [path.suffix for path in entries(tmp_path / "xdg" / "envbuild" / "matrix")] == [".table"]
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    load_fact_table([facts])
    assert len(entries(tmp_path / "home" / ".cache" / "envbuild" / "matrix")) == 1


def test_old_entries_are_removed(tmp_path: Path) -> None:
    facts, cache = folder(tmp_path), tmp_path / "cache"
    cache.mkdir()
    for number in range(cached.MAX_ENTRIES + 3):
        (cache / f"{number:040x}.table").write_text("")
        os.utime(cache / f"{number:040x}.table", (number, number))
    (cache / "chapter1.tex").touch()
    os.utime(cache / "chapter1.tex", (0, 0))
    load_fact_table([facts], cache)
    names = {path.stem for path in entries(cache)} - {"chapter1"}
    assert len(names) == cached.MAX_ENTRIES
    assert cached.cache_key([facts]) in names
    assert f"{0:040x}" not in names
    assert (cache / "chapter1.tex").exists(), "it is no entry"


def test_a_folder_that_another_user_put_there_is_left_alone(tmp_path: Path) -> None:
    """A member of the group of ~/.cache, or a user who was first in a folder that all may write."""
    facts, victim = folder(tmp_path), tmp_path / "victim"
    victim.mkdir()
    for number in range(cached.MAX_ENTRIES + 3):
        (victim / f"{number:040x}.table").touch()
    (tmp_path / "cache").symlink_to(victim)
    assert load_fact_table([facts], tmp_path / "cache").values
    assert len(list(victim.iterdir())) == cached.MAX_ENTRIES + 3
    if os.geteuid() == 0:
        (tmp_path / "cache").unlink()
        victim.rename(tmp_path / "cache")
        os.chown(tmp_path / "cache", 12345, -1)
        load_fact_table([facts], tmp_path / "cache")
        assert len(list((tmp_path / "cache").iterdir())) == cached.MAX_ENTRIES + 3


def test_the_folder_is_closed_to_the_group(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o775)
    load_fact_table([folder(tmp_path)], cache)
    assert len(entries(cache)) == 1 and cache.stat().st_mode & 0o777 == 0o755


def test_entries_that_are_used_remain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read from the disk, or in the memory of the process: the facts of other projects do not replace them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    facts, cache = folder(tmp_path), tmp_path / "xdg/envbuild/matrix"
    first = load_fact_table([facts])
    (entry,) = entries(cache)
    for use in (lambda: cached.read_entry(entry), lambda: load_fact_table([facts])):
        os.utime(entry, (1, 1))
        use()
        for number in range(cached.MAX_ENTRIES):
            (cache / f"{number:040x}.table").write_text("")
            os.utime(cache / f"{number:040x}.table", (2, 2))
        cached.write_entry(cache / f"{99:040x}.table", first)
        assert entry.exists()


def test_wrong_facts_are_reported_and_not_cached(tmp_path: Path) -> None:
    facts = write(tmp_path / "facts", {"a": ["1.0"]}, [fact("a.x", "limits", {"a": "banana"}, {"a": "1"})])
    with pytest.raises(SpecError):
        load_fact_table([facts], tmp_path / "cache")
    assert entries(tmp_path / "cache") == []


def test_an_entry_of_another_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts, cache = folder(tmp_path), tmp_path / "cache"
    first = load_fact_table([facts], cache)
    (entry,) = entries(cache)
    assert cached.read_entry(entry) == first
    owner = entry.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert cached.read_entry(entry) == (first if owner == 0 else None)  # root's entries are read by all
    if owner == 0:
        os.chown(entry, 12345, -1)
        assert cached.read_entry(entry) is None
        monkeypatch.undo()
        assert cached.read_entry(entry) is None


def test_an_entry_is_written_by_its_user_alone(tmp_path: Path) -> None:
    """With an umask of 002 the user's group could have replaced it."""
    before = os.umask(0o002)
    try:
        load_fact_table([folder(tmp_path)], tmp_path / "cache")
    finally:
        os.umask(before)
    (entry,) = entries(tmp_path / "cache")
    assert entry.stat().st_mode & 0o777 == 0o600
    entry.chmod(0o620)
    assert cached.read_entry(entry) is None


def test_an_entry_has_what_its_rows_determine(tmp_path: Path) -> None:
    facts, cache = folder(tmp_path), tmp_path / "cache"
    load_fact_table([facts], cache)
    again = cached.read_entry(entries(cache)[0])
    assert again is not None
    stored = (again.caches.guarded, again.caches.calls, again.caches.backing, again.caches.programs)
    assert all(part is not None for part in stored)
    assert again.caches.soft_programs
    rows = again.caches.guarded, again.caches.calls, again.caches.backing, again.caches.bound, again.caches.related
    fresh = replace(again, caches=Caches())
    assert rows == (
        guarded_rows(fresh),
        find_calls(fresh),
        backing_clauses(fresh),
        bound_values(fresh),
        evident_pairs(fresh),
    )
    assert again.caches.programs == {(frozenset(), HARD): program_of(fresh)}
    assert again.caches.soft_programs == {frozenset(): soft_program_of(fresh, frozenset())}
