"""Signatures and documents that are shown: which are read, and for which image they count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.json_text import canonical_json
from envbuild.core.signing.envelope import BUNDLE, encode_bundle
from envbuild.core.signing.statement import Subject, encode_statement
from envbuild.oci.sources.platform import Platform
from envbuild.publish.attached_documents import SBOM, document_artifacts, read_artifacts, text_artifact
from envbuild.publish.remote_image import RegistryImage, open_remote
from envbuild.publish.show_remote import show_remote
from envbuild.publish.signature_artifacts import signature_artifacts
from envbuild.publish.signature_check import (
    OTHER_KEY,
    REBUILD,
    SignatureReport,
    check_policy,
)
from envbuild.publish.signed_documents import AttachedDocument, read_attached
from envbuild.verify.provenance import ImageDocuments
from tests.support.foreign_images import layers, workspace
from tests.support.local_registry import Server
from tests.support.published import built, publish, publish_folder
from tests.support.pulls import MORE
from tests.support.signed_images import Keys, Place, Repeated, signature
from tests.support.signing import messages, requiring

pytestmark = pytest.mark.registry


@pytest.mark.parametrize("count", [3, 70])
def test_a_bundle_that_is_listed_many_times_is_read_once(tmp_path: Path, team: Keys, count: int) -> None:
    parts, artifacts, _ = built(tmp_path / "a", layers())
    publish_folder(parts, [*artifacts, signature(parts, team[0], tmp_path / "s")], tmp_path / "shared", "1")
    at = requiring(tmp_path / "b", team[1])
    there = open_remote(f"oci:{tmp_path}/shared:1", at.site)
    assert there
    found = there.find(Platform.of(""))
    entries = there.referrers(found.digest, BUNDLE)
    many = Repeated(there, [*entries * count])
    assert len(list(read_artifacts(many, found.digest, BUNDLE))) == 1  # type: ignore[arg-type]


def test_few_documents_of_an_image_are_read(tmp_path: Path) -> None:
    parts, artifacts, _ = built(tmp_path / "a", layers())
    made = []
    for number in range(12):
        (tmp_path / f"w{number}").mkdir()
        content = canonical_json({"number": number}) if number else b" " * (9 << 20)
        made.append(text_artifact(SBOM, "x.cdx.json", content, parts.subject, tmp_path / f"w{number}"))
    publish_folder(parts, [*artifacts, *made], tmp_path / "shared", "1")
    there = open_remote(f"oci:{tmp_path}/shared:1", workspace(tmp_path / "b").site)
    assert there
    found = there.find(Platform.of(""))
    read = [json.loads(content)["number"] for content in read_artifacts(there, found.digest, SBOM)]
    assert len(read) == 8 and read[0] == 11


def test_the_provenance_of_a_listed_key_is_known(tmp_path: Path, place: Place, team: Keys, other: Keys) -> None:
    parts, artifacts, sha = built(tmp_path / "a", layers())
    subjects = [Subject("app", parts.digest.removeprefix("sha256:")), Subject("app.sqsh", sha)]
    made = ImageDocuments(b'{"bomFormat":"CycloneDX"}', b"{}", {"runDetails": {"builder": {"id": "urn:x"}}})
    (tmp_path / "s").mkdir()
    signed = signature_artifacts(team[0], "app:1", parts.subject, tmp_path / "s", made, subjects)
    name = place(parts, [*artifacts, *signed])

    def report(key: Path) -> tuple[SignatureReport, list[AttachedDocument]]:
        at = requiring(tmp_path / "b", key, require=False)
        image_there: Any = open_remote(name, at.site)
        found = image_there.find(Platform.of(""))
        signatures = check_policy(image_there, found, at, attestations=True)
        return signatures, list(read_attached(image_there, found.digest, signatures))

    bom = {"bomFormat": "CycloneDX"}
    assert report(team[1])[1] == [AttachedDocument(made.predicate, signed=True), AttachedDocument(bom, signed=True)]
    signatures, documents = report(other[1])
    assert documents == [AttachedDocument(None, signed=False)] * 2 and signatures.foreign == [OTHER_KEY]


@pytest.mark.parametrize("hidden", [False, True], ids=["listed", "hidden"])
def test_documents_that_a_place_states_are_not_printed_as_signed(
    hidden: bool, tmp_path: Path, place: Place, team: Keys
) -> None:
    """Who can write to the place lists other documents for a signed image, and perhaps hides the signed ones."""
    parts, artifacts, sha = built(tmp_path / "a", layers())
    subjects = [Subject("app", parts.digest.removeprefix("sha256:")), Subject("app.sqsh", sha)]
    bom = {"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{}, {}]}
    made = ImageDocuments(json.dumps(bom).encode(), b"{}", {"runDetails": {"builder": {"id": "urn:true"}}})
    forged = ImageDocuments(
        json.dumps({**bom, "components": []}).encode(), b"{}", {"runDetails": {"builder": {"id": "urn:forged"}}}
    )
    for name in ("s", "f"):
        (tmp_path / name).mkdir()
    signed = signature_artifacts(team[0], "app:1", parts.subject, tmp_path / "s", made, subjects)
    listed = [
        *signed[: 1 if hidden else None],
        *document_artifacts(forged, subjects, parts.subject, "f", tmp_path / "f"),
    ]
    name, at = place(parts, [*artifacts, *listed]), requiring(tmp_path / "b", team[1])
    found = show_remote(name, at)
    assert found.data["signed_by"] == [str(team[1])]
    marks = (found.data["provenance_signed"], found.data["sbom_signed"], len(found.data["sbom"]["components"]))
    assert marks == ((False, False, 0) if hidden else (True, True, 2))
    lines = [line for line in found.text.splitlines() if "built by:" in line or "SBOM:" in line]
    assert [line.endswith("(not signed)") for line in lines] == [hidden] * 2
    assert ("urn:forged" in lines[0], "urn:true" in lines[0]) == (hidden, not hidden)


def test_show_lists_the_signatures(tmp_path: Path, place: Place, team: Keys, other: Keys) -> None:
    parts, artifacts, _ = built(tmp_path / "a", layers())
    signed = [signature(parts, key, tmp_path / name) for key, name in ((team[0], "s"), (other[0], "t"))]
    name = place(parts, [*artifacts, *signed])
    found = show_remote(name, requiring(tmp_path / "b", team[1]))
    assert (found.data["signed_by"], found.data["other_signatures"]) == ([str(team[1])], [OTHER_KEY])
    assert f"signed:   by {team[1]}; 1 other signature: {OTHER_KEY}" in found.text
    found = show_remote(name, workspace(tmp_path / "c"))
    assert (found.data["signed_by"], found.data["other_signatures"]) == ([], [OTHER_KEY] * 2)
    assert f"signed:   by no key of this site; 2 signatures: {OTHER_KEY}" in found.text


def test_show_reads_a_tag_once(tmp_path: Path, registry: Server, team: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a tag that moves meanwhile, the signature of one image would be printed beside the digest of another one."""
    one, artifacts, _ = built(tmp_path / "a", layers())
    publish(one, [*artifacts, signature(one, team[0], tmp_path / "s")], f"{registry.host}/app:1")
    evil, artifacts, _ = built(tmp_path / "e", [*layers(), MORE])
    publish(evil, artifacts, f"{registry.host}/app:evil")
    find, times = RegistryImage.find, iter([evil.digest])

    def moving(self: RegistryImage, platform: Platform) -> Any:
        other = next(times, "")
        return self.read(other) if other else find(self, platform)

    monkeypatch.setattr(RegistryImage, "find", moving)
    found = show_remote(f"docker://{registry.host}/app:1", requiring(tmp_path / "b", team[1]))
    assert (found.data["digest"], found.data["signed_by"]) == (evil.digest, [])


@pytest.mark.parametrize("same", [True, False])
def test_the_answer_of_a_rebuild_counts_for_the_image_that_it_names(
    same: bool, tmp_path: Path, place: Place, team: Keys
) -> None:
    """A statement may have other subjects: an image states any digest as that of its squashfs file."""
    parts, artifacts, _ = built(tmp_path / "a", layers())
    answer = {"subject": {"digest": parts.digest if same else f"sha256:{'0' * 64}"}, "equal": False}
    payload = encode_statement([Subject("app", parts.digest.removeprefix("sha256:"))], REBUILD, answer)
    (tmp_path / "w").mkdir()
    made = text_artifact(BUNDLE, "bundle.json", encode_bundle(payload, team[0]), parts.subject, tmp_path / "w")
    found = show_remote(place(parts, [*artifacts, made]), requiring(tmp_path / "b", team[1], require=False))
    assert found.data["rebuilds"] == ([{"signed_by": str(team[1]), "equal": False}] if same else [])


def test_show_of_an_unsigned_image_requires_nothing(tmp_path: Path, place: Place, team: Keys) -> None:
    parts, artifacts, _ = built(tmp_path / "a", layers())
    name, at = place(parts, artifacts), requiring(tmp_path / "b", team[1], tmp_path / "none.pub")
    found = show_remote(name, at)
    assert found.data["signed_by"] == found.data["other_signatures"] == [] and "signed:   no" in found.text
    assert "none.pub cannot be read" in messages(at)
