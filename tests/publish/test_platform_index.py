"""One tag for the images of several platforms, which are published one after another and from different machines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envbuild.core.errors import PublishError, SpecError
from envbuild.core.json_text import canonical_json
from envbuild.net.registry.media_types import INDEX, OCI
from envbuild.publish import platform_index
from envbuild.publish.diff_remote import diff_remote
from envbuild.publish.platform_index import add_to_index
from envbuild.publish.publish_source import publish_source
from envbuild.publish.pull import pull_image
from envbuild.publish.show_remote import show_remote
from tests.support import foreign_images
from tests.support.foreign_images import layers, workspace
from tests.support.image_project import Cli
from tests.support.local_registry import Layout, Server, file, skopeo, tar

pytestmark = pytest.mark.registry
BOTH = ("amd64", "arm64")


@pytest.fixture(params=["registry", "folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return where the tests publish to, without a tag."""
    if request.param == "folder":
        return f"oci:{tmp_path}/shared"
    server: Server = request.getfixturevalue("registry")
    return f"{server.host}/team/app"


def source(folder: Path, arch: str, *more: bytes) -> str:
    layout = Layout(folder)
    layout.add(foreign_images.image(layout, [*layers(), *more, tar(file("arch", arch.encode()))], architecture=arch))
    return f"oci:{folder}"


def send(tmp_path: Path, place: str, arch: str, *more: bytes, index: str = "app", **options: Any) -> dict[str, Any]:
    """Publish an image for `arch` from a store of its own; `more`: layers that it has besides."""
    name = f"{arch}-{len(more)}"
    tag = options.pop("tag", name)
    text = source(tmp_path / "layouts" / name, arch, *more)
    at = workspace(tmp_path / "stores" / arch)
    return dict(publish_source(text, f"{place}:{tag}", at, platform=arch, index=index, **options).data)


def inspected(place: str, arch: str, tag: str = "app") -> str:
    """Return the architecture of what another client chooses."""
    name = f"{place}:{tag}" if place.startswith("oci:") else f"docker://{place}:{tag}"
    found = skopeo("--override-arch", arch, "inspect", "--tls-verify=false", name)
    return str(json.loads(found)["Architecture"])


def digest_of(place: str, store: Path, arch: str) -> str:
    """Return the digest of the image that `pull` chooses."""
    return str(pull_image(f"{place}:app", None, workspace(store), arch).data["digest"])


def test_each_platform_adds_itself_and_clients_choose(tmp_path: Path, place: str) -> None:
    made = {arch: send(tmp_path, place, arch) for arch in BOTH}
    name = place if place.startswith("oci:") else f"docker://{place}"
    assert made["arm64"]["index"] == f"{place}:app" and send(tmp_path, place, "amd64")["sent"] == 0
    for arch in BOTH:
        assert inspected(place, arch) == arch
        got = pull_image(f"{place}:app", None, workspace(tmp_path / "b"), arch).data
        assert (got["sha256"], got["digest"]) == (made[arch]["sha256"], made[arch]["digest"])
        printed = show_remote(f"{name}:app", workspace(tmp_path / "b"), f"linux/{arch}").data
        assert (printed["platform"], printed["squashfs"]["sha256"]) == (f"linux/{arch}", made[arch]["sha256"])
    same = diff_remote(f"{name}:app", f"{name}:amd64-0", workspace(tmp_path / "b"), "amd64").data
    other = diff_remote(f"{name}:app", f"{name}:app", workspace(tmp_path / "b"), "arm64").data
    assert same["equal"] and same["before"]["digest"] == made["amd64"]["digest"]
    assert other["equal"] and other["before"]["digest"] == made["arm64"]["digest"]


def test_another_image_for_the_same_platform_replaces_it_only_on_request(tmp_path: Path, place: str) -> None:
    first = {arch: send(tmp_path, place, arch) for arch in BOTH}
    with pytest.raises(PublishError, match=r":app has another image for linux/arm64: sha256:") as caught:
        send(tmp_path, place, "arm64", tar(file("more")))
    assert caught.value.exit_code == 8 and "--move" in caught.value.hint
    assert digest_of(place, tmp_path / "b", "arm64") == first["arm64"]["digest"]
    new = send(tmp_path, place, "arm64", tar(file("more")), move=True)
    digests = [digest_of(place, tmp_path / "b", arch) for arch in BOTH]
    assert digests == [first["amd64"]["digest"], new["digest"]]


def test_an_image_that_the_index_still_names_keeps_its_artifacts(tmp_path: Path, place: str) -> None:
    """Its own tag may move to another image: the squashfs file and the signatures of the first one were removed."""
    first = send(tmp_path, place, "amd64", tag="one")
    send(tmp_path, place, "amd64", tar(file("more")), tag="one", index="", move=True)
    found = pull_image(f"{place}:app", None, workspace(tmp_path / "b"), "amd64").data
    assert (found["digest"], found["squashfs"]) == (first["digest"], first["squashfs"])
    assert found["sha256"] == first["sha256"]


def test_an_image_that_no_tag_names_any_more_keeps_its_artifacts(tmp_path: Path) -> None:
    """Jobs may name it by its digest in a folder of mirrors: they got another file, or none for want of a signature."""
    place, origin = f"oci:{tmp_path}/mirror/team/app", "oci:registry.example/"
    first = send(tmp_path, place, "amd64", tag="one")
    send(tmp_path, place, "amd64", tar(file("more")), tag="one", move=True)  # in the index as well
    at = workspace(tmp_path / "b")
    at = replace(at, site=replace(at.site, mirrors={origin: (str(tmp_path / "mirror"),)}))
    found = pull_image(f"registry.example/team/app@{first['digest']}", None, at, "amd64").data
    assert (found["squashfs"], found["sha256"]) == (first["squashfs"], first["sha256"])


def test_a_variant_that_all_processors_have_is_the_same_platform(tmp_path: Path, place: str) -> None:
    """Of two such entries programs take one or the other, so that `pull` refuses the index."""
    layout = Layout(tmp_path / "v8")
    layout.add(foreign_images.image(layout, layers(), architecture="arm64", variant="v8"))
    at = workspace(tmp_path / "store")
    first = publish_source(f"oci:{tmp_path}/v8", f"{place}:v8", at, platform="arm64", index="app").data
    with pytest.raises(PublishError, match=":app has another image for linux/arm64: sha256:"):
        send(tmp_path, place, "arm64")
    assert digest_of(place, tmp_path / "b", "arm64") == first["digest"]
    new = send(tmp_path, place, "arm64", move=True)
    assert digest_of(place, tmp_path / "b", "arm64") == new["digest"]


def test_a_move_repairs_an_index_with_two_entries_of_a_platform() -> None:
    def entry(digit: str, **platform: str) -> dict[str, Any]:
        digest = f"sha256:{digit * 64}"
        return {"mediaType": OCI.manifest, "digest": digest, "size": 1, "platform": {"os": "linux", **platform}}

    one, eight = entry("1", architecture="arm64"), entry("8", architecture="arm64", variant="v8")
    amd, packed = entry("a", architecture="amd64"), entry("2", architecture="arm64")
    packed["annotations"] = {"io.github.containers.compression.zstd": "true"}
    parts = SimpleNamespace(digest=one["digest"], subject={key: one[key] for key in ("mediaType", "digest", "size")})
    parts.platform = one["platform"]
    index = canonical_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [amd, one, eight, packed]})
    assert add_to_index(index, parts, "x", move=False) == index  # type: ignore[arg-type]
    listed = json.loads(add_to_index(index, parts, "x", move=True))["manifests"]  # type: ignore[arg-type]
    assert listed == [amd, one, packed]
    special = {**entry("3", architecture="arm64"), "artifactType": "application/vnd.example"}
    nydus = entry("4", architecture="arm64")
    nydus["platform"]["os.features"] = ["nydus"]
    beside = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [one, packed, special, nydus]}, indent=1)
    for move in (False, True):  # nothing changes, nor do the bytes that another program wrote
        assert add_to_index(beside.encode(), parts, "x", move=move) == beside.encode()  # type: ignore[arg-type]
    odd = [{**eight, "annotations": {key: 1}} for key in packed["annotations"]]
    odd += [{**eight, "annotations": []}, {**eight, "artifactType": 1}]
    for item in odd:
        index = canonical_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [one, item]})
        assert json.loads(add_to_index(index, parts, "x", move=True))["manifests"] == [one]  # type: ignore[arg-type]
    twice = canonical_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [amd, one, one]})
    assert json.loads(add_to_index(twice, parts, "x", move=True))["manifests"] == [amd, one]  # type: ignore[arg-type]


def test_a_platform_that_no_program_knows_is_refused(tmp_path: Path, place: str) -> None:
    layout = Layout(tmp_path / "odd")
    layout.add(foreign_images.image(layout, layers(), architecture="arm64", variant="8"))
    with pytest.raises(PublishError, match="cannot be added to an index: its platform"):
        publish_source(f"oci:{tmp_path}/odd", f"{place}:odd", workspace(tmp_path / "s"), platform="arm64", index="app")


def test_a_tag_of_one_image_is_not_an_index(tmp_path: Path, place: str) -> None:
    one = send(tmp_path, place, "amd64", index="", tag="app")
    with pytest.raises(PublishError, match=r":app exists and is not an index of images: it is an image") as caught:
        send(tmp_path, place, "arm64")
    assert caught.value.exit_code == 8
    assert digest_of(place, tmp_path / "b", "amd64") == one["digest"]
    send(tmp_path, place, "arm64", move=True)
    assert inspected(place, "arm64") == "arm64"
    with pytest.raises(PublishError):  # and an image does not replace the index
        send(tmp_path, place, "arm64", tar(file("more")), index="", tag="app")
    with pytest.raises(SpecError, match="the tag of the image itself"):
        send(tmp_path, place, "arm64", tag="app")


def test_an_entry_that_another_publisher_overwrote_is_written_again(
    tmp_path: Path, registry: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"{registry.host}/app"
    send(tmp_path, place, "amd64")
    old, overwritten, read = b"", list[bytes](), platform_index.read_tag

    def reading(push: Any, tag: str) -> bytes:
        nonlocal old
        content = read(push, tag)
        old = old or content
        if content != old and not overwritten:  # the other publisher had read the index before
            overwritten.append(content)
            push.manifest(old, platform_index.INDEX, tag)
            return old
        return content

    monkeypatch.setattr(platform_index, "read_tag", reading)
    made = send(tmp_path, place, "arm64")
    assert overwritten and digest_of(place, tmp_path / "b", "arm64") == made["digest"]


def test_the_command(tmp_path: Path, registry: Server) -> None:
    cli, place = Cli(tmp_path, tmp_path / "a"), f"{registry.host}/app"
    text = source(tmp_path / "layout", "amd64")
    made = cli.json("publish", text, "--to", f"{place}:one", "--index", "all")
    assert cli.json("pull", f"{place}:all", "--platform", "amd64")["sha256"] == made["sha256"]
    missing = cli.run("pull", f"{place}:all", "--platform", "arm64", check=False)
    assert missing.returncode == 3 and "made for linux/amd64" in missing.stderr
    for words in (["--to", f"{place}:all", "--index", "all"], ["--to", f"{place}:one", "--index", "a b"]):
        assert cli.run("publish", text, *words, check=False).returncode == 2
