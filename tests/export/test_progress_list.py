"""`export --list`: the records of exports, of any user, and how they are written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.core import console
from envbuild.core.errors import InputError, SpecError
from envbuild.export import progress
from envbuild.export.export import export_foreign
from envbuild.export.options import ExportOptions
from envbuild.export.progress import MERGING, PACKING, READING, Progress, redact_source, track_export
from envbuild.export.progress_list import list_exports
from envbuild.export.progress_records import DAY, Owner, process_start, remove_old_records
from tests.support import foreign_images
from tests.support.command import envbuild, refused
from tests.support.foreign_images import made, workspace
from tests.support.local_registry import Layout

pytestmark = pytest.mark.unit
HERE = Owner.here()


def record(root: Path, name: str, age: float = 0, owner: Owner = HERE, **changes: Any) -> Path:
    """Return a record that was written `age` seconds ago."""
    now = time.time()
    value = {"source": name, "output": "/out.sqsh", "state": READING, "bytes": 250, "total": 1000, "rate": 50}
    value |= {"started": now - 100, "ended": 0.0, "error": "", "process": asdict(owner), **changes}
    path = root / "exports" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    os.utime(path, (now - age, now - age))
    return path


def states(root: Path) -> dict[str, str]:
    return {row["source"]: row["state"] for row in list_exports(root).data["exports"]}


def test_running_exports(tmp_path: Path) -> None:
    record(tmp_path, "here")
    found = list_exports(tmp_path)
    (row,) = found.data["exports"]
    assert row["running"] and row["eta"] == 15 and 99 < row["elapsed"] < 200
    assert (row["bytes"], row["total"], row["rate"], row["pid"]) == (250, 1000, 50, os.getpid())
    head, line = found.text.splitlines()
    assert head.split() == ["SOURCE", "OUTPUT", "STATE", "DONE", "RATE", "ETA", "ELAPSED", "BY"]
    for word in (
        "here",
        "/out.sqsh",
        "reading layers",
        "250 B of 1.0 kB",
        "50 B/s",
        "15 s",
        f"@{HERE.host} {HERE.pid}",
    ):
        assert word in line


def test_processes_that_have_ended(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    gone = replace(HERE, pid=ended.pid, began=process_start(ended.pid) or 1)
    ended.wait()
    record(tmp_path, "gone", owner=gone)
    record(tmp_path, "another", owner=replace(HERE, began=HERE.began + 1))  # its number was given to another process
    record(tmp_path, "restarted", 600, replace(HERE, boot="earlier"))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        record(tmp_path, "child", owner=replace(HERE, pid=child.pid, began=process_start(child.pid) or 0))
        assert states(tmp_path) == {
            "gone": "interrupted",
            "another": "interrupted",
            "restarted": "interrupted",
            "child": READING,
        }
        assert {row["source"]: row["running"] for row in list_exports(tmp_path).data["exports"]}["gone"] is False
        child.communicate(b"\n")


def test_a_zombie_process_counts_as_ended(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert process_start(process.pid) is None
    process.wait()


def test_other_hosts(tmp_path: Path) -> None:
    there = replace(HERE, host="node7", boot="another", pid=1 << 21)
    record(tmp_path, "lively", 60, there)
    record(tmp_path, "silent", 60 * 12 + 5, there)
    record(tmp_path, "container", 60 * 5, replace(HERE, space="pid:[1]", pid=1 << 21))
    record(tmp_path, "same-name", 60, replace(HERE, boot="another"))
    found = list_exports(tmp_path)
    rows = {row["source"]: row for row in found.data["exports"]}
    assert all(row["running"] for row in rows.values())
    assert {name: row["silent_minutes"] for name, row in rows.items()} == {
        "lively": 0,
        "silent": 12,
        "container": 5,
        "same-name": 0,
    }
    assert rows["silent"]["state"] == READING and rows["silent"]["eta"] is None and rows["lively"]["eta"] == 15
    assert "silent for 12 min" in found.text and f"{HERE.user}@node7 {1 << 21}" in found.text


def test_ended_exports(tmp_path: Path) -> None:
    now = time.time()
    record(tmp_path, "bad", state="failed", ended=now - 10, error="layer 2 of 3\x1b[2J is damaged")
    record(tmp_path, "good", state="done", ended=now - 50, started=now - 60)
    record(tmp_path, "running")
    found = list_exports(tmp_path)
    assert [row["source"] for row in found.data["exports"]] == ["running", "good", "bad"]  # what runs, then the newest
    assert found.data["exports"][1]["elapsed"] == 10 and found.data["exports"][1]["eta"] is None
    assert "  bad: layer 2 of 3\\x1b[2J is damaged" in found.text and "\x1b" not in found.text


def test_a_failure_of_several_lines_is_listed_whole(tmp_path: Path) -> None:
    record(tmp_path, "app", state="failed", ended=time.time(), error="looked at:\n  https://one\x1b[2J: refused")
    assert list_exports(tmp_path).text.splitlines()[2:] == ["  app: looked at:", "      https://one\\x1b[2J: refused"]


def test_a_layout_is_as_large_as_its_files(tmp_path: Path) -> None:
    at, out = workspace(tmp_path / "store"), tmp_path / "image.oci"
    with track_export("cpu-ucx", out, at) as progress:
        progress.start("oci", "OCI layout")
        (out / "blobs").mkdir(parents=True)
        (out / "blobs" / "one").write_bytes(b"12345")
        (out / "index.json").write_bytes(b"{}")
    (row,) = list_exports(at.store.root).data["exports"]
    assert (row["state"], row["bytes"]) == ("done", 7)


def test_old_records_go(tmp_path: Path) -> None:
    old = record(tmp_path, "old", DAY + 60, state="done")
    left = record(tmp_path, "left", DAY + 60).rename(tmp_path / "exports/.x.json.0123")
    kept = record(tmp_path, "kept", DAY - 60, state="done")
    assert list(states(tmp_path)) == ["kept"]
    assert old.exists() and left.exists()  # a list changes nothing: it may be the store of another user
    remove_old_records(tmp_path)
    assert not old.exists() and not left.exists() and kept.exists()


def test_nothing_is_removed_through_a_link(tmp_path: Path) -> None:
    """Another user can have put it in the place of the folder."""
    (tmp_path / "other").mkdir()
    old = record(tmp_path / "other", "thesis", DAY + 60)
    (tmp_path / "store").mkdir()
    (tmp_path / "store/exports").symlink_to(old.parent)
    list_exports(tmp_path / "store")
    remove_old_records(tmp_path / "store")
    assert old.exists()


def test_files_that_are_not_records_are_ignored(tmp_path: Path) -> None:
    """Every user may write to that folder."""
    folder = record(tmp_path, "good").parent
    os.mkfifo(folder / "pipe.json")
    (folder / "folder.json").mkdir()
    (folder / "link.json").symlink_to("/etc/passwd")
    for number, text in enumerate(
        ("", "[]", "{}", "null", '{"process": 1}', "\xff", "[" * 50_000, '"' + "x" * 100_000)
    ):
        (folder / f"{number}.json").write_bytes(text.encode("latin-1"))
    value = json.loads((folder / "good.json").read_bytes())
    for name, wrong in (
        ("source", 1),
        ("bytes", "x"),
        ("process", {**value["process"], "pid": "1"}),
        ("started", None),
    ):
        (folder / f"wrong-{name}.json").write_text(json.dumps({**value, name: wrong}))
    assert list(states(tmp_path)) == ["good"]


def test_no_store(tmp_path: Path) -> None:
    assert list_exports(tmp_path / "none").data["exports"] == [] and not (tmp_path / "none").exists()
    assert "no export runs" in list_exports(tmp_path).text


# how records come about
class Seen(console.SilentReporter):
    """A reporter that reads the record whenever something is reported."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root, self.found, self.wholes = root, [], []  # type: ignore[var-annotated]

    def advance(self, task: str, done: int, total: int = 0) -> None:
        self.wholes.append((task, done, total))

    def start(self, task: str, text: str) -> None:
        self.found += [(row["state"], row["running"], row["output"]) for row in list_exports(self.root).data["exports"]]


def image(place: Path) -> Layout:
    layout = Layout(place)
    layout.add(foreign_images.image(layout, foreign_images.layers()), "1")
    return layout


@pytest.mark.slow_unit
@pytest.mark.parametrize("cache", [True, False])
def test_an_export(cache: bool, tmp_path: Path) -> None:
    layout, at = image(tmp_path / "layout"), workspace(tmp_path / "store")
    reporter = Seen(at.store.root)
    done = made(str(layout.path), replace(at, reporter=reporter), tmp_path / "a.sqsh", cache=cache)
    (row,) = list_exports(at.store.root).data["exports"]
    assert (row["state"], row["output"], row["running"]) == ("done", str(tmp_path / "a.sqsh"), False)
    assert row["bytes"] == row["total"] == done.artifact.size and row["source"] == str(layout.path)
    assert reporter.found and all(running for _, running, _ in reporter.found)
    assert any(task == "layers" and done == total > 3_000_000 for task, done, total in reporter.wholes)
    assert cache == any(task == "squashfs" and total > 3_000_000 for task, _, total in reporter.wholes)


def test_nothing_to_do_leaves_no_record(tmp_path: Path) -> None:
    layout, at = image(tmp_path / "layout"), workspace(tmp_path / "store")
    for _ in range(3):
        made(str(layout.path), at)
    assert len(list_exports(at.store.root).data["exports"]) == 1
    with pytest.raises(SpecError):
        export_foreign("docker://user:secret@example.org/app", ExportOptions("squashfs"), at)
    assert len(list_exports(at.store.root).data["exports"]) == 1


def test_a_failure_is_listed_with_its_error(tmp_path: Path) -> None:
    at = workspace(tmp_path / "store")
    with pytest.raises(InputError):
        made(f"oci:{tmp_path}", at)
    (row,) = list_exports(at.store.root).data["exports"]
    assert row["state"] == "failed" and "is not an OCI layout" in row["error"]


@pytest.mark.parametrize("way", ["a file in its place", "not to be written"])
def test_a_store_without_records(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are optional: an export continues without them."""
    layout, at = image(tmp_path / "layout"), workspace(tmp_path / "store")
    if way == "a file in its place":
        (at.store.root / "exports").rmdir()
        (at.store.root / "exports").write_text("")
    else:

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(13, "no")

        monkeypatch.setattr(progress, "write_atomic", refuse)
        monkeypatch.setattr(Path, "chmod", refuse)
    path = tmp_path / "a.sqsh"
    with track_export("x", path, at) as found:
        found.start("layers", "reading")
    monkeypatch.undo()
    assert list_exports(at.store.root).data["exports"] == []
    assert made(str(layout.path), at, path).artifact.size


def test_states_and_rates(tmp_path: Path) -> None:
    at = workspace(tmp_path / "store")
    found = Progress(at, "x", None, READING)
    found.start("layers", "reading")
    found.advance("layers", 10, 100)
    assert (found.state, found.done, found.total) == (READING, 10, 100)
    found.samples.extend([(0.0, 0), (2.0, 10), (10.0, 100)])
    assert found.rate() == 10
    found.advance("layers", 100, 100)
    assert found.state == PACKING  # the last bytes are still compressed
    found.finish("layers")
    found.start("squashfs", "merging")
    assert (found.state, found.done, found.rate()) == (MERGING, 0, 0.0)
    found.advance("other", 5, 5)
    assert found.done == 0


def test_progress_of_merging(tmp_path: Path) -> None:
    """It is read off the file that this process writes beside the output."""
    reporter = Seen(tmp_path)
    at = replace(workspace(tmp_path / "store"), reporter=reporter)
    found = Progress(at, "x", tmp_path / "a.sqsh", READING)
    found.start("squashfs", "merging")
    found.advance("squashfs", 0, 1 << 20)
    (tmp_path / ".a.sqsh.envbuild-00000000").write_bytes(bytes(1 << 19))  # another process's
    with (tmp_path / ".a.sqsh.envbuild-0123abcd").open("wb") as file:
        file.write(os.urandom(1 << 18))
        file.flush()
        os.fsync(file.fileno())
        found.measure()
    assert 1 << 18 <= found.done < 1 << 19 and reporter.wholes[-1] == ("squashfs", found.done, 1 << 20)


def test_rate_and_time_left_change_while_no_data_arrives(tmp_path: Path) -> None:
    reporter = Seen(tmp_path)
    found = Progress(replace(workspace(tmp_path / "store"), reporter=reporter), "x", None, READING)
    found.measure()
    found.start("layers", "reading")
    found.measure()
    assert reporter.wholes == []
    found.advance("layers", 10, 100)
    found.measure()
    assert reporter.wholes == [("layers", 10, 100)] * 2


def test_passwords_are_not_printed() -> None:
    assert redact_source("docker://user:se@cret@reg.example/app:1") == "docker://…@reg.example/app:1"
    pinned = f"docker://reg.example/app@sha256:{'0' * 64}"
    assert (
        redact_source(pinned) == pinned
        and redact_source("oci:/a@b/c") == "oci:/a@b/c"
        and redact_source("name") == "name"
    )


# the command line
def test_the_command(tmp_path: Path) -> None:
    store = tmp_path / "store"
    done = envbuild("export", "--list", ENVBUILD_STORE=str(store))
    assert done.returncode == 0 and done.stdout.startswith("no export runs") and not store.exists()
    record(store, "x")
    assert [
        row["source"]
        for row in json.loads(envbuild("export", "--list", "--json", ENVBUILD_STORE=str(store)).stdout)["exports"]
    ]
    place = {"ENVBUILD_STORE": str(store)}
    refused(envbuild("export", "x", "--list", **place), 2, "--list takes no SOURCE")
    refused(envbuild("export", "--list", "--to", "oci", **place), 2, "--list takes no SOURCE")
    refused(envbuild("export", "--to", "squashfs", **place), 2, "export needs a SOURCE", "--list")
    refused(envbuild("export", "x", **place), 2, "export needs --to", "envbuild export x --to squashfs")
    assert "envbuild export --list" in envbuild("export", "--help").stdout


@pytest.mark.parametrize(
    "changes",
    [
        {"total": float("inf")},
        {"rate": float("nan")},
        {"bytes": 10**400},
        {"bytes": -5},
        {"started": -1e300, "ended": 1e300},
        {"process": {**asdict(HERE), "pid": 10**30}},
        {"process": {**asdict(HERE), "began": float("inf")}},
    ],
    ids=["infinite", "nan", "huge", "negative", "times", "pid", "start"],
)
def test_a_record_with_impossible_numbers_is_no_record(changes: dict[str, Any], tmp_path: Path) -> None:
    """Another member of a group's store may have written it."""
    record(tmp_path, "good")
    record(tmp_path, "hostile", **changes)
    assert list(states(tmp_path)) == ["good"]


def test_an_export_that_would_take_for_ever_has_no_estimate(tmp_path: Path) -> None:
    record(tmp_path, "slow", rate=1e-300)
    assert list_exports(tmp_path).data["exports"][0]["eta"] is None
