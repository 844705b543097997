"""Records of what was made: found while everything that decides is the same, and the file is untouched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import envbuild
from envbuild.core.code_digest import code_digest
from envbuild.core.console import SilentReporter
from envbuild.core.digest import reported_digest
from envbuild.core.errors import VerifyError
from envbuild.core.store.gc import collect, records
from envbuild.core.store.records import read_record, record_path, recorded_stamp, write_record
from envbuild.core.store.store import Store, read_json, write_json

pytestmark = pytest.mark.unit


def written(store: Store) -> tuple[Path, Path]:
    """Return a file and its record."""
    artifact, record = store.root / "artifacts" / "app-1.sqsh", record_path(store, ["app", b"1"])
    artifact.write_text("squashfs")
    write_record(record, {"artifact": str(artifact), "layers": ["sha256:1"], "size": 8}, units=["u"], blobs=["b", "a"])
    return artifact, record


def test_a_record_is_read_while_its_file_is_as_it_was(tmp_path: Path) -> None:
    artifact, record = written(Store.open(tmp_path))
    assert read_record(record) == {"artifact": str(artifact), "layers": ["sha256:1"], "size": 8}
    artifact.write_text("another squashfs")
    assert read_record(record) is None
    artifact.unlink()
    assert read_record(record) is None


def test_a_record_is_of_the_file_that_was_written(tmp_path: Path) -> None:
    """Another process may give its name to another file before the record is written."""
    store = Store.open(tmp_path / "store")
    file = store.root / "artifacts/app.sqsh"
    file.write_bytes(b"mine")
    mine = (file.stat().st_size, file.stat().st_mtime_ns)
    other = file.with_name("other")
    other.write_bytes(b"other")
    other.rename(file)
    path = store.root / "images/a.json"
    write_record(path, {"artifact": str(file), "layers": []}, stamped=mine)
    assert recorded_stamp(path) == mine and read_record(path) is None
    write_record(path, {"artifact": str(file), "layers": []})
    assert read_record(path)


def test_a_record_of_a_file_of_holes_is_not_read(tmp_path: Path) -> None:
    """Another member of a group can write both, and all others would read it for hours."""
    store = Store.open(tmp_path)
    artifact, record = written(store)
    os.truncate(artifact, 15 << 40)
    write_record(record, {"artifact": str(artifact), "layers": ["sha256:1"], "size": 8}, units=["u"], blobs=["b", "a"])
    assert read_record(record) is None
    with pytest.raises(VerifyError, match="far more bytes than are on the disk"):
        reported_digest(artifact, SilentReporter())


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"made": 1}', '{"made": {}, "stat": [1, 1]}'])
def test_an_invalid_record_counts_as_absent(text: str, tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text(text)
    assert read_record(tmp_path / "record.json") is None
    assert read_record(tmp_path / "none.json") is None


@pytest.mark.parametrize("name", ["a" * 300, "a\0", "\ud800", "a\nb", "ü"])
@pytest.mark.parametrize("key", ["units", "blobs"])
def test_names_that_no_store_has_are_no_record(key: str, name: str, tmp_path: Path) -> None:
    """Another member of a shared store wrote it: store gc is not stopped by it."""
    store = Store.open(tmp_path)
    _, path = written(store)
    value = read_json(path)
    value["holds"][key] = [name]
    path.write_text(json.dumps(value))
    assert read_record(path) is None
    collect(store, SilentReporter(), dry_run=False, everything=True)


ODD = [None, 3, "text", [], {}, [[]], [3], {"a": 1}]


@pytest.mark.slow_unit
@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("key", ["made", "stat", "holds", "artifact", "layers", "units", "blobs"])
def test_any_json_in_a_record_is_no_record_or_one_that_can_be_used(key: str, value: object, tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    artifact, path = written(store)
    whole = read_json(path)
    for place in (whole, whole["made"], whole["holds"]):
        if key in place:
            place[key] = value
    write_json(path, whole)
    if (made := read_record(path)) is not None:
        assert value == [] and made["artifact"] == str(artifact)
    artifact.with_name("app.sqsh").symlink_to(artifact.name)
    collect(store, SilentReporter(), dry_run=False, everything=True)
    assert artifact.exists()


def test_the_garbage_collector_reads_written_records(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    artifact, record = written(store)
    ((path, value),) = records(store, {artifact.name})
    assert path == record
    assert (value["made"]["layers"], value["holds"]) == (["sha256:1"], {"units": ["u"], "blobs": ["a", "b"]})


def test_a_record_is_named_by_each_part_and_by_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    names = {record_path(store, parts).name for parts in (["ab", "c"], ["a", "bc"], ["abc"], [b"ab", b"c", ""])}
    assert len(names) == 4 and record_path(store, [b"ab", b"c"]).name in names
    monkeypatch.setattr("envbuild.core.store.records.code_digest", lambda: "another envbuild")
    assert record_path(store, ["abc"]).name not in names


@pytest.mark.slow_unit
def test_the_digest_covers_every_room(tmp_path: Path) -> None:
    """The package is hashed, not the folder of the function: a moved module must not shrink the set."""
    package = tmp_path / "envbuild"
    shutil.copytree(Path(envbuild.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))

    def digest() -> str:
        program = "from envbuild.core.code_digest import code_digest; print(code_digest())"
        return subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, text=True,
            capture_output=True, check=True,
        ).stdout.strip()  # fmt: skip

    before = digest()
    assert before == code_digest()
    for room in ("make.py", "core", "oci", "matrix", "squashfs", "verify"):
        path = max((package / room).rglob("*.py"), default=package / room)
        path.write_text(path.read_text() + "\n")
        after = digest()
        assert after != before, room
        before = after


def test_a_record_of_what_was_published_remains_with_another_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node found nothing that it had imported before an upgrade, while the registry did not answer."""
    store = Store.open(tmp_path / "store")

    def paths() -> list[Path]:
        return [record_path(store, ["last import", "x"], made_by_code=by_code) for by_code in (True, False)]

    before = paths()
    monkeypatch.setattr("envbuild.core.store.records.code_digest", lambda: "another")
    assert [one == other for one, other in zip(before, paths(), strict=True)] == [False, True]
