"""A registry that lists the artifacts of an image itself, as OCI's distribution spec 1.1 has it: no tag lists them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.publish.show_remote import show_remote
from tests.support.foreign_images import layers, noise, workspace
from tests.support.local_registry import Server, file, skopeo, tar
from tests.support.published import built, publish, pull
from tests.support.push_proxy import PushProxy, pushing

pytestmark = pytest.mark.registry

TAGS = "docker/registry/v2/repositories/app/_manifests/tags"


@pytest.fixture
def proxy(registry: Server) -> Iterator[PushProxy]:
    with pushing(registry.host) as found:
        found.referrers = {}
        yield found


def test_the_registry_lists_the_artifact_and_no_tag_does(tmp_path: Path, registry: Server, proxy: PushProxy) -> None:
    parts, artifacts, sha256 = built(tmp_path / "a", layers(), whole=True)
    name = f"{proxy.url.removeprefix('http://')}/app:1"
    publish(parts, artifacts, name)
    assert [path.name for path in (registry.root / TAGS).iterdir()] == ["1"]
    made = pull(name, tmp_path / "b")
    assert (made["sha256"], made["squashfs"]) == (sha256, artifacts[0].digest)
    found = show_remote(f"docker://{name}", workspace(tmp_path / "c")).data
    assert found["squashfs"]["sha256"] == sha256
    proxy.asked.clear()
    assert publish(parts, artifacts, name).sent == 0
    assert not [path for method, path, _ in proxy.asked if method == "PUT" and "/blobs/" in path]


def test_the_artifact_is_found_among_many_on_several_pages(tmp_path: Path, proxy: PushProxy) -> None:
    """Others may be of any kind; the registry need not filter."""
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    name = f"{proxy.url.removeprefix('http://')}/app:1"
    publish(parts, artifacts, name)
    assert proxy.referrers
    (own,) = proxy.referrers[parts.digest]
    others = [{**own, "digest": f"sha256:{number:064x}"} for number in range(5)]
    proxy.referrers[parts.digest], proxy.page = [*others, own], 2
    assert pull(name, tmp_path / "b")["sha256"] == sha256


def test_a_registry_that_began_to_list_artifacts_serves_older_images(
    tmp_path: Path, registry: Server, proxy: PushProxy
) -> None:
    """Their artifacts are listed by a tag; what is published afterwards needs none."""
    one, two = built(tmp_path / "1", layers()), built(tmp_path / "2", [*layers(), tar(file("more", noise(9000, 7)))])
    publish(*one[:2], f"{registry.host}/app:1")
    host = proxy.url.removeprefix("http://")
    assert pull(f"{host}/app:1", tmp_path / "b")["sha256"] == one[2]
    publish(*two[:2], f"{host}/app:2")
    tags = {path.name for path in (registry.root / TAGS).iterdir()}
    assert tags == {"1", "2", one[0].digest.replace(":", "-")}
    assert pull(f"{host}/app:2", tmp_path / "b")["sha256"] == two[2]
    listed = json.loads(
        skopeo("inspect", "--raw", "--tls-verify=false", f"docker://{registry.host}/app@{two[1][0].digest}")
    )
    assert listed["subject"]["digest"] == two[0].digest
