"""Images that are published as their squashfs file alone, for sites that start images with enroot and pyxis only."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import InputError, PublishError, SpecError, VerifyError
from envbuild.core.store.build_records import PACK_VERSION
from envbuild.core.store.leases import JobStep
from envbuild.launch.launch import launch_image
from envbuild.launch.model import Request
from envbuild.net.registry.media_types import OCI
from envbuild.oci.sources.open import open_source
from envbuild.publish.artifact_types import SQUASHFS
from envbuild.publish.diff_remote import diff_remote
from envbuild.publish.publish_source import publish_source
from envbuild.publish.pyxis_importer import import_image
from envbuild.publish.show_remote import show_remote
from envbuild.publish.squashfs_artifact import Artifact
from tests.support.foreign_images import image, layers, noise, workspace
from tests.support.launching import shipped_workspace
from tests.support.local_registry import Layout, Server, file, tar
from tests.support.published import built, publish, pull
from tests.support.push_proxy import pushing

pytestmark = pytest.mark.registry

MORE = tar(file("opt/more", noise(3_000_000, 7)))


def layout(folder: Path, contents: list[bytes]) -> str:
    """Write an image; return it as a source."""
    made = Layout(folder)
    made.add(image(made, contents), "x")
    return f"oci:{folder}:x"


def publish_only(source: str, to: str, store: Path, **options: Any) -> dict[str, Any]:
    return dict(publish_source(source, to, workspace(store), layers=False, **options).data)


@pytest.mark.parametrize("kind", ["registry", "folder"])
def test_the_tag_names_the_file_and_is_pulled(tmp_path: Path, registry: Server, kind: str) -> None:
    place = f"{registry.host}/app" if kind == "registry" else f"oci:{tmp_path}/shared"
    made = publish_only(layout(tmp_path / "image", layers()), f"{place}:1", tmp_path / "a")
    assert made["digest"] == made["squashfs"]
    for wanted in (f"{place}:1", *([f"{place}@{made['digest']}"] if kind == "registry" else [])):
        found = pull(wanted, tmp_path / "b")
        assert found["sha256"] == made["sha256"] == hashlib.sha256(Path(found["path"]).read_bytes()).hexdigest()
        assert found["digest"] == found["squashfs"] == made["digest"]
    again = publish_only(f"oci:{tmp_path}/image:x", f"{place}:1", tmp_path / "a")
    assert (again["sent"], again["digest"]) == (0, made["digest"])


def test_after_a_change_little_more_than_the_new_pack_is_sent(tmp_path: Path, registry: Server) -> None:
    one, two = layout(tmp_path / "1", layers()), layout(tmp_path / "2", [*layers(), MORE])
    with pushing(registry.host) as proxy:
        host = proxy.url.removeprefix("http://")
        publish_only(one, f"{host}/app:1", tmp_path / "a")
        proxy.asked.clear()
        publish_only(two, f"{host}/app:2", tmp_path / "a")
        pack = (
            max((tmp_path / "a/packs").glob(f"*.v{PACK_VERSION}"), key=lambda path: path.stat().st_mtime).stat().st_size
        )
        assert 3_000_000 < pack < sum(proxy.sent("PUT")) < 1.02 * pack


def test_show_and_diff_read_its_configuration(tmp_path: Path, registry: Server) -> None:
    place = f"{registry.host}/app"
    publish_only(layout(tmp_path / "1", layers()), f"{place}:1", tmp_path / "a")
    publish_only(layout(tmp_path / "2", [*layers(), MORE]), f"{place}:2", tmp_path / "a")
    publish_source(f"oci:{tmp_path}/1:x", f"{place}:whole", workspace(tmp_path / "a"))
    found = show_remote(f"docker://{place}:1", workspace(tmp_path / "b"))
    full = show_remote(f"docker://{place}:whole", workspace(tmp_path / "b"))
    assert [found.data[key] for key in ("env", "labels", "platform")] == [
        full.data[key] for key in ("env", "labels", "platform")
    ]
    assert [layer["diff_id"] for layer in found.data["layers"]] == [layer["diff_id"] for layer in full.data["layers"]]
    assert found.data["squashfs"]["sha256"] == full.data["squashfs"]["sha256"] and found.data["bytes"] == 0
    assert "not published" in found.text
    changes = diff_remote(f"docker://{place}:1", f"docker://{place}:2", workspace(tmp_path / "b")).data
    assert len(changes["layers"]["added"]) == 1 and 3_000_000 < changes["new_bytes"] < 3_100_000
    same = diff_remote(f"docker://{place}:1", f"docker://{place}:whole", workspace(tmp_path / "b")).data
    assert same["not_compared"][-1] == "layers" and not same["equal"]  # one of them has layers, which are not read


def test_the_importer_starts_it(tmp_path: Path, registry: Server) -> None:
    made = publish_only(layout(tmp_path / "image", layers()), f"{registry.host}/app:1", tmp_path / "a")
    path = import_image(f"docker://{registry.host}#app:1", workspace(tmp_path / "b"), JobStep("7", "0", "n"))
    assert hashlib.sha256(path.read_bytes()).hexdigest() == made["sha256"]


def test_an_index_of_platforms_leads_to_it(tmp_path: Path, registry: Server) -> None:
    place = f"{registry.host}/app"
    made = publish_only(layout(tmp_path / "image", layers()), f"{place}:1", tmp_path / "a", index="all")
    assert pull(f"{place}:all", tmp_path / "b")["sha256"] == made["sha256"]


def test_the_whole_file_belongs_to_it(tmp_path: Path, registry: Server) -> None:
    made = publish_only(layout(tmp_path / "image", layers()), f"{registry.host}/app:1", tmp_path / "a", whole=True)
    assert hashlib.sha256(registry.blob(made["sha256"]).read_bytes()).hexdigest() == made["sha256"]
    assert pull(f"{registry.host}/app:1", tmp_path / "b")["sha256"] == made["sha256"]


@pytest.mark.parametrize("kind", ["registry", "folder"])
def test_an_export_of_it_names_pull(tmp_path: Path, registry: Server, kind: str) -> None:
    place = f"{registry.host}/app:1" if kind == "registry" else f"oci:{tmp_path}/shared:1"
    publish_only(layout(tmp_path / "image", layers()), place, tmp_path / "a")
    at = workspace(tmp_path / "b")
    source = f"docker://{place}" if kind == "registry" else place
    with pytest.raises(InputError, match="without the layers") as caught, open_source(source, at.site, at.store, ""):
        pass
    assert caught.value.hint == f"envbuild pull {place}"


def test_it_does_not_replace_an_image_unasked(tmp_path: Path, registry: Server) -> None:
    place, source = f"{registry.host}/app:1", layout(tmp_path / "image", layers())
    publish_source(source, place, workspace(tmp_path / "a"))
    with pytest.raises(PublishError, match="another digest"):
        publish_only(source, place, tmp_path / "a")
    made = publish_only(source, place, tmp_path / "a", move=True)
    assert pull(place, tmp_path / "b")["digest"] == made["digest"]


def test_it_is_never_taken_for_the_file_of_an_image(tmp_path: Path, registry: Server) -> None:
    """An image may list it among its artifacts: it belongs to none."""
    parts, _, _ = built(tmp_path / "a", layers(), bound=False)
    alone = publish_only(layout(tmp_path / "image", layers()), f"{registry.host}/app:1", tmp_path / "c")["digest"]
    manifest = registry.blob(alone.removeprefix("sha256:")).read_bytes()
    publish(parts, [Artifact(SQUASHFS, manifest, alone, parts.digest, ())], f"{registry.host}/app:2")
    with pytest.raises(VerifyError, match="belongs to another image: none instead of sha256"):
        pull(f"{registry.host}/app:2", tmp_path / "d")


def test_one_that_is_an_image_as_well_is_refused(tmp_path: Path) -> None:
    """A rebuild would compare and sign the file, and a container engine start the image of the same digest."""
    publish_only(layout(tmp_path / "image", layers()), f"oci:{tmp_path}/shared:1", tmp_path / "a")
    blobs, index = tmp_path / "shared/blobs/sha256", json.loads((tmp_path / "shared/index.json").read_text())
    manifest = json.loads((blobs / index["manifests"][0]["digest"].removeprefix("sha256:")).read_bytes())
    (config,) = (layer for layer in manifest["layers"] if layer["mediaType"] == OCI.config)
    content = json.dumps(manifest | {"config": config}).encode()
    index["manifests"][0] |= {"digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content)}
    (blobs / hashlib.sha256(content).hexdigest()).write_bytes(content)
    (tmp_path / "shared/index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match="its config is not the empty one of an artifact"):
        pull(f"oci:{tmp_path}/shared:1", tmp_path / "b")


def test_container_engines_cannot_start_it(tmp_path: Path, registry: Server) -> None:
    place = f"docker://{registry.host}/app:1"
    publish_only(layout(tmp_path / "image", layers()), place.removeprefix("docker://"), tmp_path / "a")
    at = shipped_workspace(
        f'slurm: {{version: "23.11.4", pyxis: "0.20.0", enroot: "3.5.0"}}\nmirrors: {{"oci:{registry.host}/": '
        f'["http://{registry.host}"]}}\n',
        tmp_path,
    )
    for form in ("docker", "edf", "trainjob"):
        with pytest.raises(SpecError, match="was published with --squashfs-only"):
            launch_image(place, form, Request(("x",), target="h100-ib"), at)
    other = layout(tmp_path / "whole", layers())
    packs = publish_source(other, f"{registry.host}/app:2", workspace(tmp_path / "b")).data["squashfs"]
    with pytest.raises(SpecError, match="was published with --squashfs-only"):  # the artifact beside an image
        launch_image(f"docker://{registry.host}/app@{packs}", "docker", Request(("x",), target="h100-ib"), at)
    found = launch_image(place, "srun", Request(("x",), target="h100-ib"), at)
    assert any("pyxis starts it by the importer of envbuild alone" in line for line in found.plan.warnings)
