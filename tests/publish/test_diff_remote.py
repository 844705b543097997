"""`envbuild diff` and `show` of published images: from their small documents, without their layers."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.digest import file_digest
from envbuild.core.errors import VerifyError
from envbuild.publish import artifact_types as types
from envbuild.publish.compared_image import published_side
from envbuild.publish.diff_remote import SQUASHFS, compare_content, diff_lines, diff_remote, unsure_parts
from envbuild.publish.published_image import read_published
from envbuild.publish.published_texts import PublishedText
from envbuild.publish.rebuild.claim import published_claim
from envbuild.publish.show_remote import show_remote
from tests.support.command import envbuild
from tests.support.cutting_proxy import cutting
from tests.support.foreign_images import CONFIG, layers, noise, workspace
from tests.support.image_pair import lock_text, resolution
from tests.support.local_registry import Server, file, serve, tar
from tests.support.published import built, publish, publish_folder
from tests.support.time_limit import ends_within

pytestmark = pytest.mark.registry

UNITS = [{"created_by": f"envbuild unit {name}"} for name in ("base", "venv", "glue")]


def texts(ucx: str, numpy: str, commit: str) -> list[PublishedText]:
    spec = f"name: small\nlayers:\n  ucx: {ucx}\n".encode()
    return [
        PublishedText(types.SPEC, "small.yaml", spec),
        PublishedText(types.LOCK, "small.lock", lock_text(ucx, numpy, commit)),
        PublishedText(types.RESOLUTION, "small.resolution.json", resolution(ucx=ucx)),
    ]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("registry")) as server:
        yield server


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, registry: Server) -> tuple[str, str]:
    """Two published images: another ucx and numpy, one layer more, another variable."""
    tmp_path = tmp_path_factory.mktemp("images")
    one = built(tmp_path / "1", layers(), texts=texts("1.19", "2.1", "a"), history=UNITS)
    more = tar(file("opt", noise(300_000)))
    env = {**CONFIG, "Env": [*CONFIG["Env"], "NEW=1"]}
    changed = texts("1.20", "2.2", "b")
    history = [*UNITS, {"created_by": "envbuild unit ucx"}]
    other = built(tmp_path / "2", [*layers(), more], texts=changed, config=env, history=history)
    publish(*one[:2], f"{registry.host}/app:1")
    publish(*other[:2], f"{registry.host}/app:2")
    return f"docker://{registry.host}/app:1", f"docker://{registry.host}/app:2"


def changes(data: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in data[key].items() if value}


def test_two_published_images(tmp_path: Path, two: tuple[str, str]) -> None:
    found = diff_remote(*two, workspace(tmp_path / "c"))
    data = found.data
    assert data["components"]["changed"] == {"ucx": ["1.19", "1.20"]}
    assert data["python"]["changed"] == {"numpy": ["2.1", "2.2"]}
    assert data["sources"]["changed"] == {"ucx.tar": ["github:openucx/ucx@a", "github:openucx/ucx@b"]}
    assert changes(data, "env") == {"added": {"NEW": "1"}} and not data["debian"]
    assert data["spec"] == ["-  ucx: 1.19", "+  ucx: 1.20"]
    assert [row["unit"] for row in data["layers"]["added"]] == ["ucx"] and data["layers"]["removed"] == []
    assert data["layers"]["same"] == 3 and data["not_compared"] == [] and data["equal"] is False
    assert 300_000 < data["new_bytes"] < 320_000
    assert (data["before"]["image"], data["before"]["layers"], data["after"]["layers"]) == ("small", 3, 4)
    lines = found.text.splitlines()
    assert lines[2].startswith("different: 1 component, 1 Python package, 1 source, 1 variable, 1 layer added, 2 lines")
    assert "  ~ ucx 1.19 → 1.20" in lines and any(line.startswith("  + ucx ") for line in lines)


def test_the_file_of_a_claim_is_the_one_that_was_named_at_the_begin(tmp_path: Path, registry: Server) -> None:
    """A rebuild takes hours, after which a tag may name another image."""
    for number, one in enumerate((layers(), layers()[:1])):
        parts, artifacts, _ = built(tmp_path / f"{number}", one, texts=texts("1.19", "2.1", "a"))
        publish(parts, artifacts, f"{registry.host}/moving:1", move=True)
        if not number:
            claim = published_claim(f"docker://{registry.host}/moving:1", workspace(tmp_path / "c"), "")
            assert file_digest(claim.write(tmp_path)) == claim.squashfs
    with pytest.raises(VerifyError, match="names another image than at the begin"):
        claim.write(tmp_path)


def test_no_layer_is_fetched(tmp_path: Path, registry: Server, two: tuple[str, str]) -> None:
    with cutting(registry.host) as counter:
        host = counter.url.removeprefix("http://")
        diff_remote(f"docker://{host}/app:1", f"docker://{host}/app:2", workspace(tmp_path / "c"))
        fetched = [registry.blob(path.rpartition(":")[2]).stat().st_size for path, _ in counter.asked]
    assert max(fetched) < 10_000 and not list((tmp_path / "c/blobs/sha256").iterdir())


def test_the_compression_is_not_a_difference(tmp_path: Path, registry: Server, two: tuple[str, str]) -> None:
    parts, artifacts, _ = built(tmp_path / "3", layers(), texts=texts("1.19", "2.1", "a"), history=UNITS)
    publish(parts, artifacts, f"{registry.host}/other/name:9")
    found = diff_remote(two[0], f"docker://{registry.host}/other/name:9", workspace(tmp_path / "c"))
    assert found.data["equal"] and found.text.splitlines()[2] == "equal: 3 layers with the same content"


def test_what_an_image_does_not_state_is_not_compared(tmp_path: Path, two: tuple[str, str]) -> None:
    """An image of another program, in a folder."""
    publish_folder(*built(tmp_path / "3", layers())[:2], tmp_path / "shared", "1")
    found = diff_remote(two[0], f"oci:{tmp_path}/shared:1", workspace(tmp_path / "c"))
    assert not any(found.data[key] for key in ("components", "debian", "python", "base", "sources", "spec"))
    assert found.data["not_compared"] == ["base", "components", "debian", "python", "sources", "resolution", "spec"]
    assert "not compared, because one image does not state it, or only as its own word: base, comp" in found.text
    # Its configuration has no history, and its squashfs file another evidence.
    assert list(found.data["content"]["changed"]) == ["configuration", "squashfs file"] and not found.data["equal"]
    assert "different: 2 digests; " in found.text


@pytest.mark.parametrize("other", ["squashfs", "layers", "file"])
def test_images_that_state_the_same_and_have_another_content_are_different(
    other: str, tmp_path: Path, two: tuple[str, str]
) -> None:
    """A registry may list the squashfs file of another image, with these documents; and a file may state anything."""
    one = published_side(read_published(two[0], workspace(tmp_path / "c")))
    assert one.published and one.published.squashfs and one.layers
    assert compare_content(one, one, SilentReporter()) == {}
    if other == "layers":
        changed, name = replace(one, layers=one.layers[::-1]), "layers in order"
    elif other == "squashfs":
        document = replace(one.published.squashfs.document, sha256="0" * 64)
        squashfs = replace(one.published.squashfs, document=document)
        changed, name = replace(one, published=replace(one.published, squashfs=squashfs)), "squashfs file"
    else:
        (tmp_path / "file").write_text("x")
        changed, name = replace(one, published=None, side=replace(one.side, file=tmp_path / "file")), "squashfs file"
    assert list(compare_content(one, changed, SilentReporter())["changed"]) == [name]
    assert unsure_parts(one, changed) == []
    alone = replace(one, published=replace(one.published, squashfs=None))
    assert unsure_parts(one, alone) == unsure_parts(alone, one) == ["content"] and unsure_parts(alone, alone) == []
    unbuilt = replace(one, published=None)
    assert unsure_parts(unbuilt, one) == ["content"] and SQUASHFS not in compare_content(unbuilt, one, SilentReporter())


def test_a_published_image_and_the_file_that_was_pulled(tmp_path: Path, registry: Server, two: tuple[str, str]) -> None:
    file = tmp_path / "out.sqsh"
    pulled = envbuild("pull", f"{registry.host}/app:1", "-o", str(file), ENVBUILD_STORE=str(tmp_path / "d"))
    assert pulled.returncode == 0, pulled.stderr
    same = diff_remote(two[0], str(file), workspace(tmp_path / "c")).data
    assert not any(same[key] for key in ("env", "start", "labels")) and same["layers"]["same"] == 3
    other = diff_remote(str(file), two[1], workspace(tmp_path / "c")).data
    assert changes(other, "env") == {"added": {"NEW": "1"}} and len(other["layers"]["added"]) == 1
    assert other["new_bytes"] is None


def test_layers_with_other_blobs_are_not_known_to_be_equal(tmp_path: Path, two: tuple[str, str]) -> None:
    """What a configuration states of them is its own word, and enroot starts them without comparing it."""
    one = published_side(read_published(two[0], workspace(tmp_path / "c")))
    assert one.published and one.layers
    layers = [replace(one.layers[0], digest=f"sha256:{'0' * 64}"), *one.layers[1:]]
    assert unsure_parts(one, replace(one, layers=layers)) == ["layers"] and unsure_parts(one, one) == []
    assert compare_content(one, replace(one, layers=layers), SilentReporter()) == {}


def test_a_name_of_the_project_is_compared_by_its_lock(tmp_path: Path, two: tuple[str, str]) -> None:
    data = diff_remote("cpu-ucx", two[0], workspace(tmp_path / "c")).data
    assert data["components"]["changed"]["ucx"][1] == "1.19" and data["spec"]
    assert data["not_compared"] == ["env", "start", "labels", "resolution", "layers"]


def test_a_damaged_lock_is_named(tmp_path: Path, registry: Server, two: tuple[str, str]) -> None:
    bad = [PublishedText(types.LOCK, "small.lock", b"schema: 999\n")]
    publish(*built(tmp_path / "3", layers(), texts=bad)[:2], f"{registry.host}/bad:1")
    found = diff_remote(two[0], f"docker://{registry.host}/bad:1", workspace(tmp_path / "c"))
    assert "format 999" in found.text and "components" in found.data["not_compared"]


def test_the_command(tmp_path: Path, two: tuple[str, str]) -> None:
    environ = {"ENVBUILD_STORE": str(tmp_path / "none")}
    done = envbuild("diff", *two, "--json", **environ)
    assert done.returncode == 1 and json.loads(done.stdout)["new_bytes"] > 300_000
    assert [line.split(maxsplit=1)[1] for line in done.stderr.splitlines()] == [
        f"reading what was published as {name.removeprefix('docker://')}" for name in two
    ]
    assert envbuild("diff", two[0], two[0], **environ).returncode == 0
    missing = envbuild("diff", two[0], f"{two[0]}-missing", **environ)
    assert (missing.returncode, missing.stdout) == (10, "") and "is not available" in missing.stderr
    assert not (tmp_path / "none").exists()


def test_show_has_the_resolution_and_the_units(tmp_path: Path, two: tuple[str, str]) -> None:
    data = show_remote(two[1], workspace(tmp_path / "c")).data
    assert data["resolution"]["versions"] == {"ucx": "1.20"} and data["platform"] == "linux/amd64"
    assert [layer["unit"] for layer in data["layers"]] == ["base", "venv", "glue", "ucx"] and data["env"]["NEW"] == "1"


def test_long_specs_are_compared_in_a_time_that_grows_with_their_lines() -> None:
    numbers = random.Random(1)
    one, other = ([str(numbers.randrange(150)) for _ in range(100_000)] for _ in range(2))
    with ends_within(30):
        found = diff_lines("\n".join(["same", *one, "end"]), "\n".join(["same", *other, "end"]))
    assert len(found) <= 200_000 and not {"-same", "+same", "-end", "+end"} & {*found}
    assert diff_lines("a\nb\nc\nd", "a\nx\nc\ny\nd") == ["-b", "+x", "+y"]
    assert diff_lines("a\na", "a\na\na") == ["+a"] and diff_lines("a", "a") == []
