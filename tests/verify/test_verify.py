"""Verification of any squashfs file: only one with a lock inside can be compared."""

from __future__ import annotations

import contextlib
import json
import mmap
import shutil
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.digest import file_digest
from envbuild.core.errors import SpecError, VerifyError
from envbuild.core.store.records import read_record, write_record
from envbuild.core.timings import TimingReporter
from envbuild.export.built_image import BuiltImage, ImageRecord, RecordKey
from envbuild.lock.lockfile import parse_lock
from envbuild.lock.model import lock_digest
from envbuild.verify import pinned_image, verify, verify_file
from envbuild.verify.evidence import evidence_document, summary_lines
from envbuild.verify.pinned_image import PinnedImage
from envbuild.verify.provenance import ImageDocuments
from envbuild.verify.results import AuditResult, Status
from envbuild.verify.selection import Selection
from tests.support.bit_flips import flip_bit
from tests.support.foreign_images import workspace
from tests.support.image_pair import lock_text
from tests.support.packs import file, pack
from tests.support.squashfs_image import write_image

pytestmark = pytest.mark.unit

LOCK = lock_text("1.19", "2.0", "a" * 40)


def image(folder: Path, **texts: bytes) -> Path:
    """Write an image with these files in /etc/envbuild (`_` for a dot)."""
    layer = [file(f"etc/envbuild/{name.replace('_', '.')}".encode(), text) for name, text in texts.items()]
    return write_image([pack(folder / "one.pack", [file(b"a"), *layer])], folder / "x.sqsh", epoch=0).path


@pytest.mark.parametrize("texts", [{}, {"lock_yaml": LOCK}, {"resolution_json": b"{}"}])
def test_a_file_without_its_lock_is_not_compared(texts: dict[str, bytes], tmp_path: Path) -> None:
    path = image(tmp_path, **texts)
    with pytest.raises(VerifyError) as caught:
        verify.verify_file(path, workspace(tmp_path / "store"))
    assert (caught.value.where, caught.value.hint) == (str(path), f"envbuild show {path}")


def test_a_file_with_its_lock_is_audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = {"name": "mytrainer", "version": "1.2", "content": f"sha256:{'0' * 64}"}
    path = image(tmp_path, lock_yaml=LOCK, resolution_json=json.dumps({"dev": [project]}).encode())
    lock = parse_lock(LOCK.decode(), path)
    seen: list[Any] = []
    monkeypatch.setattr(verify_file, "inspect_image", lambda run, own: {"schema": 1})
    monkeypatch.setattr(verify_file, "audit", lambda report, expected: seen.append((report, expected)) or [])
    times = TimingReporter(SilentReporter())
    found = verify_file.verify_file(path, replace(workspace(tmp_path / "store"), reporter=times))
    assert times.tasks[0].text == f"sha256 of {path.name}"  # it is long for a large file
    assert seen[0][1].python == {**verify_file.locked_contents(lock).python, "mytrainer": "1.2"}
    assert (found.image, found.lock, found.results) == (lock.image, lock_digest(lock), ())
    assert found.artifact.startswith("sha256:") and len(seen) == 1
    assert evidence_document(found)["inspected_by"] == "the image's own /usr/bin/python3"
    assert summary_lines(found)[-1].startswith("read by the image's own /usr/bin/python3: a malicious file can forge")


@pytest.mark.parametrize("moment", ["before it is opened", "while it is audited"])
def test_a_file_that_is_exchanged_is_not_audited(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was digested is what is opened, and what an answer about a signature is about."""
    path = image(tmp_path, lock_yaml=LOCK, resolution_json=b"{}")

    def exchange(*_: object) -> Any:
        time.sleep(0.02)  # times of a file system have steps of a clock tick
        path.rename(tmp_path / "other")
        shutil.copy2(tmp_path / "other", path)
        return []

    digest = pinned_image.reported_digest
    if moment == "before it is opened":
        monkeypatch.setattr(
            pinned_image, "reported_digest", lambda *given, **how: (digest(*given, **how), exchange())[0]
        )
        monkeypatch.setattr(verify_file, "inspect_image", lambda run, own: pytest.fail("a program ran"))
    else:
        monkeypatch.setattr(verify_file, "inspect_image", lambda run, own: {"schema": 1})
        monkeypatch.setattr(verify_file, "audit", exchange)
    with pytest.raises(VerifyError, match="replaced or changed the file while it was verified"):
        verify_file.verify_file(path, workspace(tmp_path / "store"))


@pytest.mark.parametrize("only", [Selection(tiers=("run",)), Selection(recipes=("ucx",))])
def test_checks_of_recipes_are_not_known_of_a_file(only: Selection, tmp_path: Path) -> None:
    path = image(tmp_path, lock_yaml=LOCK, resolution_json=b"{}")
    with pytest.raises(SpecError, match="the checks of recipes are not known of a file") as caught:
        verify.verify_image(str(path), workspace(tmp_path / "store"), only)
    assert caught.value.where == str(path)


@pytest.fixture
def built(tmp_path: Path) -> tuple[BuiltImage, Path]:
    """Return an image that `make` recorded, and its record."""
    store = workspace(tmp_path / "store").store.root
    path = image(store / "artifacts", lock_yaml=LOCK)
    lock = parse_lock(LOCK.decode(), path)
    made = ImageRecord("app", str(path), file_digest(path), lock_digest(lock), "embedded", (), "", (), (), (), 1.0)
    record = store / "images" / "record.json"
    write_record(record, asdict(made))
    parts: Any = SimpleNamespace(spec=None, keys=dict, units=())
    return BuiltImage(parts, lock, parts, made, (), RecordKey(record, LOCK)), record


def test_a_flipped_bit_of_the_file_fails_and_the_next_make_writes_it_again(
    built: tuple[BuiltImage, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, record = built
    monkeypatch.setattr(verify, "load_built_image", lambda name, workspace: known)
    monkeypatch.setattr(verify, "collect_evidence", lambda *_: pytest.fail("a program ran in a damaged file"))
    path = Path(known.record.artifact)
    flip_bit(path, path.stat().st_size // 2, 3)
    assert read_record(record), "size and time of the file are those of the record"
    with pytest.raises(VerifyError) as caught:
        verify.verify_image("app", workspace(tmp_path / "store"))
    assert (caught.value.exit_code, caught.value.hint) == (7, "envbuild make app writes it again")
    assert known.record.sha256 in caught.value.message and file_digest(path) in caught.value.message
    evidence = json.loads(next(tmp_path.glob("store/artifacts/*.evidence.json")).read_bytes())
    assert [item["status"] for item in evidence["results"]] == ["fail"] and evidence["tiers"]["audit"] == "failed"
    assert read_record(record) is None and json.loads(record.read_bytes())["holds"] == {"units": [], "blobs": []}


def test_an_intact_file_is_audited_after_all_its_bytes_were_read(
    built: tuple[BuiltImage, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, record = built
    audited(known, record, monkeypatch)
    before = read_record(record)
    assert before and before["evidence"] == ""
    result = verify.verify_image("app", workspace(tmp_path / "store"))
    assert [(item["name"], item["status"]) for item in result.data["results"]] == [("bytes of the file", "pass")]
    after = read_record(record)  # `make` does not verify it again
    assert after and {**after, "evidence": ""} == before
    assert json.loads(Path(after["evidence"]).read_bytes())["image"] == known.lock.image
    statement = json.loads(Path(known.record.artifact).with_suffix(".provenance.json").read_bytes())
    assert statement["subject"][0]["digest"] == {"sha256": known.record.sha256}


def test_a_failure_now_ends_what_an_earlier_verify_recorded(
    built: tuple[BuiltImage, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check may depend on the day; `make` was up to date for ever."""
    known, record = built
    audited(known, record, monkeypatch)
    states = []
    for failed in ([], [AuditResult("a check", Status.FAIL, "failed")], []):
        monkeypatch.setattr(verify, "audit", lambda report, expected, failed=failed: failed)
        with pytest.raises(VerifyError, match="a check") if failed else contextlib.nullcontext():
            verify.verify_image("app", workspace(tmp_path / "store"))
        found = read_record(record)
        states.append(found and bool(found["evidence"]))
    assert states == [True, False, True]


@pytest.mark.parametrize("way", ["renamed", "back", "written"])
def test_a_file_that_is_exchanged_while_it_is_audited_has_no_evidence(
    way: str, built: tuple[BuiltImage, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another member of the group exchanged it by one that passes, and put it back."""
    known, record = built
    audited(known, record, monkeypatch)
    path, other = Path(known.record.artifact), tmp_path / "other"
    collect = verify.collect_evidence

    def exchange(*given: Any) -> Any:
        time.sleep(0.02)  # times of a file system have steps of a clock tick
        if way == "written":
            flip_bit(path, path.stat().st_size // 2, 3)
        else:
            path.rename(other)
            shutil.copy2(other, path)
        if way == "back":
            other.replace(path)
        return collect(*given)

    monkeypatch.setattr(verify, "collect_evidence", exchange)
    with pytest.raises(VerifyError, match="replaced or changed the file while it was verified"):
        verify.verify_image("app", workspace(tmp_path / "store"))
    assert not list(tmp_path.glob("store/artifacts/*.evidence.json"))


def test_what_a_member_writes_by_a_mapping_is_not_what_is_verified(
    built: tuple[BuiltImage, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first write to a page of a mapping, the next ones set no time of the file."""
    known, record = built
    audited(known, record, monkeypatch)
    path, collect = Path(known.record.artifact), verify.collect_evidence
    (tmp_path / "store").chmod(0o3775)
    (tmp_path / "store/artifacts").chmod(0o2775)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        mapping[100] ^= 1
        mapping[100] ^= 1

        def write(pinned: PinnedImage, *given: Any) -> Any:
            mapping[100] ^= 1
            assert file_digest(path) != pinned.sha256 == file_digest(pinned.content)
            return collect(pinned, *given)

        monkeypatch.setattr(verify, "collect_evidence", write)
        result = verify.verify_image("app", workspace(tmp_path / "store"))
    assert result.data["artifact"] == f"sha256:{known.record.sha256}"
    assert list((tmp_path / "store").glob("user-*/tmp/*")) == []


def test_evidence_in_a_store_of_a_group_is_where_its_user_alone_writes(
    built: tuple[BuiltImage, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, record = built
    audited(known, record, monkeypatch)
    (tmp_path / "store").chmod(0o3775)
    verify.verify_image("app", workspace(tmp_path / "store"))
    after = read_record(record)
    assert after and Path(after["evidence"]).is_file()
    own = Path(after["evidence"]).parents[1]
    assert own.name.startswith("user-") and own.stat().st_mode & 0o777 == 0o700
    assert not list(tmp_path.glob("store/artifacts/*.evidence.json"))


@pytest.mark.parametrize(
    ("tier", "other", "state"),
    [("run", "audit", "partly: 1 not run (not requested)"), ("audit", "run", "not run: not requested")],
)
def test_a_part_of_the_checks_states_what_did_not_run(
    tier: str, other: str, state: str, built: tuple[BuiltImage, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, record = built
    audited(known, record, monkeypatch)
    result = verify.verify_image("app", workspace(tmp_path / "store"), Selection(tiers=(tier,)))
    assert result.data["tiers"][other] == state
    assert f"): {state}\n" in result.text and "evidence: not written: only a part ran" in result.text
    assert not list(tmp_path.glob("store/artifacts/*.evidence.json"))


def audited(known: BuiltImage, record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the audit and the imports of an image have no results."""
    monkeypatch.setattr(verify, "load_built_image", lambda *_: known)
    monkeypatch.setattr(verify, "image_checks", lambda *_: [])
    monkeypatch.setattr(verify, "own_content", lambda *_: known)
    monkeypatch.setattr(verify, "expected_contents", lambda *_: SimpleNamespace(modules=()))
    known.plan.config, known.plan.image, known.resolution.recipes = SimpleNamespace(env={}), "app", ()  # type: ignore[misc, assignment]
    known.resolution.spec, known.resolution.contents = SimpleNamespace(dev=()), ()  # type: ignore[misc, assignment]
    monkeypatch.setattr(verify, "inspect_image", lambda run, own: {})
    monkeypatch.setattr(verify, "image_documents", lambda *_: ImageDocuments(b"{}", b"{}", {}))
    monkeypatch.setattr(verify, "audit", lambda report, expected: [])
    monkeypatch.setattr(verify, "import_results", lambda *_: [])
