"""Signed images: what a site that requires signatures pulls, and every way to get something else past it, on a real
registry and in a folder."""

from __future__ import annotations

import base64
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import SignatureError, VerifyError
from envbuild.core.json_text import canonical_json
from envbuild.core.signing.envelope import BUNDLE
from envbuild.core.signing.key_file import Signer
from envbuild.launch.image_sources import find_image
from envbuild.net.registry.media_types import INDEX
from envbuild.net.registry.reference import parse_reference
from envbuild.net.signature_policy import SignaturePolicy
from envbuild.net.site import Site
from envbuild.oci.sources.platform import Platform
from envbuild.publish.attached_documents import PREDICATE_TYPE
from envbuild.publish.image_parts import ImageParts
from envbuild.publish.publish_source import publish_source
from envbuild.publish.published_image import read_published
from envbuild.publish.pull import pull_image
from envbuild.publish.rebuild.claim import read_claim
from envbuild.publish.registry import open_push
from envbuild.publish.remote_image import open_remote
from envbuild.publish.show_remote import show_remote
from envbuild.publish.signature_artifacts import signature_artifacts
from envbuild.publish.signature_check import (
    check_policy,
)
from envbuild.publish.simple_signing import KIND, PAYLOAD, SIGNATURE
from envbuild.publish.verify_remote import verify_remote
from envbuild.spec.workspace import Workspace
from tests.support.bit_flips import flip_bit
from tests.support.foreign_images import image, layers, workspace
from tests.support.local_registry import Layout, Server, sha256, skopeo
from tests.support.published import built, publish, publish_folder
from tests.support.pulls import MORE, digest
from tests.support.signed_images import Keys, Place, bundle, signature
from tests.support.signing import messages, requiring

pytestmark = pytest.mark.registry


def refused(name: str, at: Workspace) -> SignatureError:
    """Return the error of a pull that must be refused; nothing is written."""
    with pytest.raises(SignatureError) as caught:
        pull_image(name, None, at)
    assert caught.value.exit_code == 7 and len(caught.value.findings) == 1 and caught.value.hint
    assert not list((at.store.root / "artifacts").glob("*.sqsh")) and "\n" not in caught.value.message
    return caught.value


def test_a_signed_image_is_pulled(tmp_path: Path, place: Place, team: Keys, other: Keys) -> None:
    parts, artifacts, sha = built(tmp_path / "a", layers())
    name = place(parts, [*artifacts, signature(parts, team[0], tmp_path / "s")])
    found = pull_image(name, None, requiring(tmp_path / "b", other[1], team[1])).data
    assert found["sha256"] == sha == digest(found["path"]) and found["signed_by"] == [str(team[1])]
    assert found["signing_keys"] == [team[0].hint]


def test_an_unsigned_image_is_refused(tmp_path: Path, place: Place, team: Keys) -> None:
    parts, artifacts, _ = built(tmp_path / "a", layers())
    name = place(parts, artifacts)
    error = refused(name, requiring(tmp_path / "b", team[1]))
    assert "it has no signature" in error.message and "--sign" in error.hint
    assert pull_image(name, None, requiring(tmp_path / "c", team[1], require=False)).data["signed_by"] == []


def test_the_hint_names_the_file_that_has_the_policy(tmp_path: Path, place: Place, team: Keys) -> None:
    """The user's own, where a project cannot loosen it."""
    parts, artifacts, _ = built(tmp_path / "a", layers())
    name = place(parts, artifacts)
    at = requiring(tmp_path / "b", team[1])
    policy = SignaturePolicy((team[1],), True, "/home/me/site.yaml:3:1")
    at = replace(at, site=replace(at.site, signatures=policy, where="/project/site.yaml"))
    assert refused(name, at).hint.endswith("to signatures: keys of /home/me/site.yaml")


def test_a_signature_of_another_key_is_refused(tmp_path: Path, place: Place, team: Keys, other: Keys) -> None:
    parts, artifacts, _ = built(tmp_path / "a", layers())
    name = place(parts, [*artifacts, signature(parts, other[0], tmp_path / "s")])
    assert "no key of the site made it" in refused(name, requiring(tmp_path / "b", team[1])).message


def test_a_signature_of_another_image_is_refused(tmp_path: Path, place: Place, team: Keys) -> None:
    """The list of artifacts is the registry's: a good signature of one image is listed for another one."""
    parts, artifacts, _ = built(tmp_path / "a", layers())
    signed = bundle(parts, team[0], tmp_path / "s", about="b" * 64)
    name = place(parts, [*artifacts, signed])
    assert "a signature belongs to another image" in refused(name, requiring(tmp_path / "b", team[1])).message


def test_a_signature_that_was_changed_is_refused(tmp_path: Path, place: Place, team: Keys) -> None:
    parts, artifacts, _ = built(tmp_path / "a", layers())
    signed = bundle(parts, team[0], tmp_path / "s", about="b" * 64, change="")
    moved = bundle(parts, team[0], tmp_path / "t", change="c" * 64)
    name = place(parts, [*artifacts, signed, moved])
    message = refused(name, requiring(tmp_path / "b", team[1])).message
    assert "does not fit what it signs" in message and "belongs to another image" in message


def test_an_unknown_predicate_is_refused(tmp_path: Path, place: Place, team: Keys) -> None:
    parts, artifacts, _ = built(tmp_path / "a", layers())
    signed = bundle(parts, team[0], tmp_path / "s", kind="https://example.org/reviewed/v1")
    name = place(parts, [*artifacts, signed])
    assert "the unknown predicate" in refused(name, requiring(tmp_path / "b", team[1])).message


def test_a_signed_provenance_alone_is_not_a_signature(tmp_path: Path, place: Place, team: Keys) -> None:
    parts, artifacts, _ = built(tmp_path / "a", layers())
    signed = bundle(parts, team[0], tmp_path / "s", kind="https://slsa.dev/provenance/v1")
    name = place(parts, [*artifacts, signed])
    assert "it has no signature" in refused(name, requiring(tmp_path / "b", team[1])).message


def test_one_good_signature_of_two_suffices_and_the_other_one_is_reported(
    tmp_path: Path, place: Place, team: Keys
) -> None:
    parts, artifacts, sha = built(tmp_path / "a", layers())
    bad = bundle(parts, team[0], tmp_path / "s", change="c" * 64)
    name = place(parts, [*artifacts, signature(parts, team[0], tmp_path / "t"), bad])
    at = requiring(tmp_path / "b", team[1])
    assert pull_image(name, None, at).data["sha256"] == sha
    assert "1 other signature of it does not count: a signature does not fit what it signs" in messages(at)


def test_a_removed_list_of_signatures_is_refused(tmp_path: Path, registry: Server, team: Keys) -> None:
    """A registry can hide signatures; then nothing is pulled."""
    parts, artifacts, _ = built(tmp_path / "a", layers())
    publish(parts, [*artifacts, signature(parts, team[0], tmp_path / "s")], f"{registry.host}/app:1")
    push = open_push(parse_reference(f"{registry.host}/app:1"), Site(Path("/")), 0.01)
    tag = parts.digest.replace(":", "-")
    empty = canonical_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [artifacts[0].descriptor]})
    push.manifest(empty, INDEX, tag)
    error = refused(f"docker://{registry.host}/app:1", requiring(tmp_path / "b", team[1]))
    assert "it has no signature" in error.message


def test_a_swapped_signature_blob_is_refused(tmp_path: Path, registry: Server, team: Keys) -> None:
    parts, artifacts, _ = built(tmp_path / "a", layers())
    signed = signature(parts, team[0], tmp_path / "s")
    publish(parts, [*artifacts, signed], f"{registry.host}/app:1")
    layer = json.loads(signed.manifest)["layers"][0]["digest"].removeprefix("sha256:")
    path = registry.blob(layer)
    path.write_bytes(path.read_bytes().replace(b"a", b"b"))
    refused(f"docker://{registry.host}/app:1", requiring(tmp_path / "b", team[1]))


def test_a_moved_tag_needs_a_signature_of_its_own(tmp_path: Path, registry: Server, team: Keys) -> None:
    parts, artifacts, _ = built(tmp_path / "a", layers())
    publish(parts, [*artifacts, signature(parts, team[0], tmp_path / "s")], f"{registry.host}/app:1")
    evil, others, _ = built(tmp_path / "b", [*layers(), MORE])
    publish(evil, others, f"{registry.host}/app:1", move=True)
    refused(f"docker://{registry.host}/app:1", requiring(tmp_path / "c", team[1]))


@pytest.mark.parametrize("keys", ["none", "fifo", "huge"])
def test_a_policy_without_a_usable_key_lets_nothing_pass(
    tmp_path: Path, registry: Server, team: Keys, keys: str
) -> None:
    import os

    parts, artifacts, _ = built(tmp_path / "a", layers())
    publish(parts, [*artifacts, signature(parts, team[0], tmp_path / "s")], f"{registry.host}/app:1")
    path = tmp_path / "a.pub"
    if keys == "fifo":
        os.mkfifo(path)
    elif keys == "huge":
        path.write_bytes(b"x" * (1 << 20))
    at = requiring(tmp_path / "b", *([] if keys == "none" else [path]))
    error = refused(f"docker://{registry.host}/app:1", at)
    wanted = {"none": "names no key", "fifo": "is not a regular file", "huge": "has more than 64 KiB"}
    assert wanted[keys] in error.message


def test_an_artifact_that_the_signed_manifest_does_not_name_is_not_used(
    tmp_path: Path, registry: Server, team: Keys
) -> None:
    """An image of another program names no squashfs file, so that a list can offer any: its layers are converted."""
    parts, artifacts, _ = built(tmp_path / "a", layers(), bound=False)
    publish(parts, [*artifacts, signature(parts, team[0], tmp_path / "s")], f"{registry.host}/app:1")
    at = requiring(tmp_path / "b", team[1])
    found = pull_image(f"docker://{registry.host}/app:1", None, at).data
    assert parts.digest in found["origin"] and "fetched" not in found and found["signed_by"] == [str(team[1])]


def test_a_list_without_the_file_that_the_signed_manifest_names_is_refused(
    tmp_path: Path, registry: Server, team: Keys
) -> None:
    """A mirror can leave entries out of it: each node would start a file of its own, which has no signature."""
    parts, _, _ = built(tmp_path / "a", layers())
    publish(parts, [signature(parts, team[0], tmp_path / "s")], f"{registry.host}/short:1")
    reference = f"docker://{registry.host}/short:1"
    with pytest.raises(VerifyError, match=r"names the squashfs file .*, which is not listed"):
        pull_image(reference, None, requiring(tmp_path / "b", team[1]))
    with pytest.raises(VerifyError, match=r"names the squashfs file .*, which is not listed"):
        read_published(reference, requiring(tmp_path / "b", team[1]), to_use=True)
    printed = show_remote(reference, requiring(tmp_path / "b", team[1])).data  # which requires nothing
    assert printed["signed_by"] == [str(team[1])] and printed["squashfs"] is None
    at = requiring(tmp_path / "c", team[1], require=False)
    parts, _, _ = built(tmp_path / "d", [*layers(), MORE])
    publish(parts, [], f"{registry.host}/unsigned:1")  # copied without its artifacts
    assert "fetched" not in pull_image(f"docker://{registry.host}/unsigned:1", None, at).data
    assert "is not listed there; converting its layers" in messages(at)


def test_a_job_has_the_digest_that_was_compared_and_nothing_that_a_list_adds(
    tmp_path: Path, registry: Server, team: Keys
) -> None:
    """A tag can move between the comparison and the job, and the engine of a node can have another image under it."""
    parts, artifacts, _ = built(tmp_path / "a", layers(), bound=False)
    publish(parts, [*artifacts, signature(parts, team[0], tmp_path / "s")], f"{registry.host}/app:1")
    name, at = f"docker://{registry.host}/app:1", requiring(tmp_path / "b", team[1])
    found = find_image(name, at, "h100-ib")
    assert (found.reference, found.docker) == (
        f"docker://{registry.host}/app@{parts.digest}",
        f"{registry.host}/app@{parts.digest}",
    )
    assert find_image(found.reference, at, "h100-ib").reference == found.reference
    assert find_image(name, requiring(tmp_path / "c", team[1], require=False), "h100-ib").reference == name
    assert read_published(name, at).squashfs and not read_published(name, at, to_use=True).squashfs


def test_a_layout_without_squashfs_file_is_converted_as_signed(tmp_path: Path, team: Keys) -> None:
    parts, _, _ = built(tmp_path / "a", layers(), bound=False)
    publish_folder(parts, [signature(parts, team[0], tmp_path / "s")], tmp_path / "shared", "1")
    found = pull_image(f"oci:{tmp_path}/shared:1", None, requiring(tmp_path / "b", team[1])).data
    assert parts.digest in found["origin"] and Path(found["path"]).is_file()


def test_a_third_party_image_is_signed_when_it_is_published(tmp_path: Path, registry: Server, team: Keys) -> None:
    made = Layout(tmp_path / "image")
    made.add(image(made, layers()), "x")
    at = workspace(tmp_path / "a")
    for layers_too, tag in ((True, "1"), (False, "2")):
        to = f"{registry.host}/app:{tag}"
        sent = publish_source(f"oci:{tmp_path}/image:x", to, at, signer=team[0], layers=layers_too).data
        again = publish_source(f"oci:{tmp_path}/image:x", to, at, signer=team[0], layers=layers_too).data
        assert (again["digest"], again["sent"]) == (sent["digest"], 0), "a second signature has the same bytes"
        found = pull_image(f"docker://{to}", None, requiring(tmp_path / "b", team[1])).data
        assert found["sha256"] == sent["sha256"] and found["signed_by"]
        tagged = json.loads(
            skopeo(
                "inspect",
                "--raw",
                "--tls-verify=false",
                f"docker://{registry.host}/app:{sent['digest'].replace(':', '-')}",
            )
        )
        assert len([item for item in tagged["manifests"] if item["artifactType"] == BUNDLE]) == 1


def test_an_archive_is_refused_where_signatures_are_required(tmp_path: Path, team: Keys) -> None:
    with pytest.raises(SignatureError, match="can have no signature"):
        pull_image(f"docker-archive:{tmp_path}/x.tar", None, requiring(tmp_path / "b", team[1]))


def simple(parts: ImageParts, key: Signer, *, about: str = "") -> tuple[bytes, str]:
    """Return a payload of simple signing and its signature: the form of cosign 2."""
    identity = {"docker-reference": "registry.example/app"}
    named = {"docker-manifest-digest": about or parts.digest}
    payload = {"critical": {"identity": identity, "image": named, "type": KIND}, "optional": None}
    content = json.dumps(payload, separators=(",", ":")).encode()
    return content, base64.b64encode(key.sign(content)).decode()


@pytest.mark.parametrize("case", ["good", "other-image", "other-key", "damaged"])
def test_signatures_in_the_older_form_of_cosign(
    tmp_path: Path, registry: Server, team: Keys, other: Keys, case: str
) -> None:
    parts, artifacts, sha = built(tmp_path / "a", layers())
    publish(parts, artifacts, f"{registry.host}/app:1")
    key = other[0] if case == "other-key" else team[0]
    content, text = simple(parts, key, about="sha256:" + "b" * 64 if case == "other-image" else "")
    layout = Layout(tmp_path / "sig")
    layer = {**layout.blob(content, PAYLOAD), "annotations": {SIGNATURE: "?" if case == "damaged" else text}}
    config = {
        "architecture": "",
        "os": "",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(content)}"]},
    }
    kind = "application/vnd.oci.image.config.v1+json"
    manifest = {"schemaVersion": 2, "config": layout.blob(json.dumps(config).encode(), kind), "layers": [layer]}
    manifest["mediaType"] = "application/vnd.oci.image.manifest.v1+json"
    layout.add(layout.blob(json.dumps(manifest).encode(), manifest["mediaType"]), "x")  # type: ignore[arg-type]
    registry.push(f"oci:{tmp_path}/sig:x", f"app:{parts.digest.replace(':', '-')}.sig")
    at = requiring(tmp_path / "b", team[1])
    if case == "good":
        assert pull_image(f"docker://{registry.host}/app:1", None, at).data["sha256"] == sha
    else:
        assert "of the older form" in refused(f"docker://{registry.host}/app:1", at).message
        at = requiring(tmp_path / "c", team[1], require=False)  # it names no key: it may be of a third party
        assert pull_image(f"docker://{registry.host}/app:1", None, at).data["signed_by"] == []
        assert "signature" not in messages(at)


def test_the_signature_of_an_index_is_one_of_its_images(tmp_path: Path, registry: Server, team: Keys) -> None:
    """cosign signs what the tag names, which for several platforms is the index."""
    parts, artifacts, sha = built(tmp_path / "a", layers())
    publish(parts, artifacts, f"{registry.host}/app:1")
    push = open_push(parse_reference(f"{registry.host}/app:all"), Site(Path("/")), 0.01)
    value = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [{**parts.subject, "platform": dict(parts.platform)}]}
    content = canonical_json(value)
    push.manifest(content, INDEX, "all")
    name = f"docker://{registry.host}/app:all"
    refused(name, requiring(tmp_path / "b", team[1]))
    subject = {"mediaType": INDEX, "digest": f"sha256:{sha256(content)}", "size": len(content)}
    (tmp_path / "s").mkdir()
    signed = signature_artifacts(team[0], "app:all", subject, tmp_path / "s")
    publish(parts, [*artifacts, *signed], f"{registry.host}/app:1")
    assert pull_image(name, None, requiring(tmp_path / "b", team[1])).data["sha256"] == sha


def test_a_changed_signature_is_reported_where_none_is_required(tmp_path: Path, place: Place, team: Keys) -> None:
    parts, artifacts, sha = built(tmp_path / "a", layers())
    changed = bundle(parts, team[0], tmp_path / "s", change="0" * 64)
    at = requiring(tmp_path / "b", team[1], require=False)
    assert pull_image(place(parts, [*artifacts, changed]), None, at).data["sha256"] == sha
    assert "is not signed by a key of the site; 1 signature of it does not count: a signature does" in messages(at)


def test_an_image_under_another_tag_has_the_same_signature(tmp_path: Path, registry: Server, team: Keys) -> None:
    """Each tag of an unchanged image added one: of a list of many, those of a listed key were perhaps not read."""
    layout = Layout(tmp_path / "image")
    layout.add(image(layout, layers()), "x")
    at = workspace(tmp_path / "store")
    made = [
        publish_source(f"oci:{layout.path}:x", f"{registry.host}/tags:{tag}", at, signer=team[0]).data for tag in "123"
    ]
    assert {one["digest"] for one in made} == {made[0]["digest"]} and made[0]["sent"] > 0
    found = open_remote(f"{registry.host}/tags:1", at.site)
    assert found
    kinds = [entry["artifactType"] for entry in found.referrers(made[0]["digest"], BUNDLE)]
    assert kinds.count(BUNDLE) == 1


def test_verify_refuses_an_unsigned_image_before_anything_is_fetched(
    tmp_path: Path, place: Place, team: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    from envbuild.publish import verify_remote as module

    parts, artifacts, _ = built(tmp_path / "a", layers())
    name = place(parts, artifacts)
    monkeypatch.setattr(module, "pull_compared", lambda *_, **__: pytest.fail("it was fetched"))
    with pytest.raises(SignatureError, match="it has no signature"):
        verify_remote(name, requiring(tmp_path / "b", team[1]))


@pytest.mark.parametrize("require", [True, False])
def test_a_tag_that_moves_while_it_is_verified_is_read_once(
    tmp_path: Path, registry: Server, team: Keys, monkeypatch: pytest.MonkeyPatch, *, require: bool
) -> None:
    """The signatures of the first reading were reported for the file of the second."""
    from envbuild.publish import verify_remote as module

    parts, artifacts, sha = built(tmp_path / "a", layers())
    evil = built(tmp_path / "e", [*layers(), MORE])
    name = f"{registry.host}/app:1"
    publish(parts, [*artifacts, signature(parts, team[0], tmp_path / "s")], name)
    read = module.read_attached

    def move_tag(*arguments: Any) -> Any:
        publish(*evil[:2], name, move=True)
        return read(*arguments)

    monkeypatch.setattr(module, "read_attached", move_tag)
    verified: list[tuple[str, str]] = []

    class ReachedError(Exception):
        pass

    def verify(path: Path, at: Workspace, sha256: str) -> None:
        verified.append((digest(path), sha256))
        raise ReachedError

    monkeypatch.setattr(module, "verify_file", verify)
    with pytest.raises(ReachedError):
        verify_remote(f"docker://{name}", requiring(tmp_path / "b", team[1], require=require))
    assert verified == [(sha, sha)]
    assert not (tmp_path / "b/artifacts/app-1.sqsh").is_symlink()  # what is only verified has no name


def test_other_bytes_than_the_published_ones_are_not_verified(tmp_path: Path, place: Place, team: Keys) -> None:
    """The file of an earlier pull is taken by its size and time; verify compares all bytes."""
    parts, artifacts, sha = built(tmp_path / "a", layers())
    name = place(parts, [*artifacts, signature(parts, team[0], tmp_path / "s")])
    at = requiring(tmp_path / "b", team[1])
    path = Path(pull_image(name, None, at).data["path"]).resolve()
    before = path.stat()
    flip_bit(path, before.st_size // 2)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(VerifyError, match=r"(?s)corrupt file: expected sha256 .* the next pull writes it again"):
        verify_remote(name, at)
    path.unlink()
    assert digest(pull_image(name, None, at).data["path"]) == sha


def test_an_unsigned_image_is_not_rebuilt(tmp_path: Path, place: Place, team: Keys) -> None:
    """Its lock decides which programs the rebuild runs."""
    parts, artifacts, _ = built(tmp_path / "a", layers())
    name = place(parts, artifacts)
    with pytest.raises(SignatureError, match="it has no signature"):
        read_claim(name, requiring(tmp_path / "b", team[1]))


def test_a_comparison_takes_little_time(tmp_path: Path, registry: Server, team: Keys) -> None:
    parts, artifacts, _ = built(tmp_path / "a", layers())
    publish(parts, [*artifacts, signature(parts, team[0], tmp_path / "s")], f"{registry.host}/app:1")
    at = requiring(tmp_path / "b", team[1])
    image_there: Any = open_remote(f"docker://{registry.host}/app:1", at.site)
    found = image_there.find(Platform.of(""))
    began = time.process_time()
    assert check_policy(image_there, found, at).keys
    assert time.process_time() - began < 1  # a loaded machine; docs/signatures.md: 0.2 s


def test_a_list_that_hides_a_signature_hides_it_and_nothing_passes(tmp_path: Path, place: Place, team: Keys) -> None:
    """The list names the predicate of each bundle, so that others need not be read; it may be wrong."""
    parts, artifacts, _ = built(tmp_path / "a", layers())
    good = signature(parts, team[0], tmp_path / "s")
    hidden = replace(good, annotations={PREDICATE_TYPE: "https://slsa.dev/provenance/v1"})
    name = place(parts, [*artifacts, hidden])
    assert "it has no signature" in refused(name, requiring(tmp_path / "b", team[1])).message
