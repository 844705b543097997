"""The image that is chosen of an index, by its platform."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import ConflictError, InputError, SpecError
from envbuild.oci.document import Part
from envbuild.oci.manifest import BlobDescriptor
from envbuild.oci.sources.oci_layout import find_entries, open_layout
from envbuild.oci.sources.platform import Platform, pick_manifest

pytestmark = pytest.mark.unit


def test_platforms() -> None:
    assert Platform.of("linux/arm64") == Platform.of("arm64") == Platform.of("aarch64") == Platform("arm64", "", True)
    assert str(Platform.of("linux/arm/v7")) == "linux/arm/v7" and not Platform.of("").asked
    for text in ("windows/amd64", "linux/", "AMD64"):
        with pytest.raises(SpecError):
            Platform.of(text)


def entry(arch: str, variant: str = "", system: str = "linux", number: int = 0) -> dict[str, Any]:
    platform = {"architecture": arch, "os": system, **({"variant": variant} if variant else {})}
    digest = f"sha256:{number:064x}"
    return {"digest": digest, "size": 1, "mediaType": "x", "platform": platform}


def pick(
    listed: list[dict[str, Any]], name: str, platform: Platform, manifests: dict[int, dict[str, Any]] | None = None
) -> BlobDescriptor:
    found = {f"sha256:{number:064x}": value for number, value in (manifests or {}).items()}
    return pick_manifest(Part(listed, "manifests").parts(), name, platform, found.__getitem__)


def test_one_of_an_index() -> None:
    unknown = entry("unknown", system="unknown", number=9)
    index = [unknown, entry("amd64", number=1), entry("arm", "v6", number=2), entry("arm", "v7", number=3)]
    for text, number in (("amd64", 1), ("linux/arm/v7", 3), ("arm", 2)):
        assert pick(index, "x", Platform.of(text)).digest == f"{number:064x}"
    with pytest.raises(ConflictError) as caught:
        pick(index, "x", Platform.of("arm64"))
    assert caught.value.message == (
        "x has no image for linux/arm64, because it is made for linux/amd64, linux/arm/v6, linux/arm/v7"
    )
    alone = [unknown, entry("s390x", number=5)]
    assert pick(alone, "x", Platform("amd64")).digest == f"{5:064x}"
    with pytest.raises(ConflictError, match="because it is made for linux/s390x"):
        pick(alone, "x", Platform.of("amd64"))
    with pytest.raises(ConflictError, match="because it is made for nothing"):
        pick([unknown], "x", Platform("amd64"))
    with pytest.raises(InputError, match="is damaged"):
        pick([{"platform": {"os": "linux", "architecture": "amd64"}}], "x", Platform("amd64"))


@pytest.mark.parametrize(
    "platform",
    [
        ("x86_64", "", "linux"),
        ("AMD64", "", "linux"),
        ("amd64", "", "Linux"),
        ("amd64", "", ""),
        ("arm64", "8", "linux"),
    ],
)
def test_a_platform_in_another_spelling_is_refused(platform: tuple[str, str, str]) -> None:
    """containerd and Docker take it for the usual one, skopeo does not."""
    with pytest.raises(InputError, match="is not written as in the OCI image spec"):
        pick([entry(*platform, number=1), entry("amd64", number=2)], "x", Platform.of("amd64"))


def test_two_images_of_one_platform_are_refused() -> None:
    """Docker takes the first one, skopeo that without a variant."""
    both = [entry("amd64", "v1", number=1), entry("amd64", number=2)]
    for listed in (both, both[::-1], [entry("amd64", number=1), entry("amd64", number=2)]):
        with pytest.raises(InputError, match="has two images for linux/amd64"):
            pick(listed, "x", Platform.of("amd64"))
    assert pick([both[0], both[0], entry("arm64", number=3)], "x", Platform.of("amd64")).digest == f"{1:064x}"


def test_an_image_may_be_there_in_zstd_too_and_no_other_under_that_name() -> None:
    """podman adds the same image in zstd (manifest push --add-compression), and newer ones of skopeo choose that."""
    zstd = {**entry("amd64", number=2), "annotations": {"io.github.containers.compression.zstd": "true"}}
    listed, wanted = [entry("amd64", number=1), zstd], Platform.of("amd64")
    one, other = ({"config": {"digest": f"sha256:{number:064x}", "size": 1, "mediaType": "x"}} for number in (7, 8))
    assert pick(listed, "x", wanted, {1: one, 2: dict(one)}).digest == f"{1:064x}"
    for manifests in ({1: one, 2: other}, {1: other, 2: one}):
        with pytest.raises(InputError, match="has two images for linux/amd64"):
            pick(listed, "x", wanted, manifests)
    with pytest.raises(InputError, match="the manifest of x is damaged"):
        pick(listed, "x", wanted, {1: one, 2: {}})
    assert pick([zstd], "x", wanted).digest == f"{2:064x}"
    many = [{**zstd, **{key: entry("amd64", number=number)[key] for key in ("digest",)}} for number in range(1, 7)]
    with pytest.raises(InputError, match="has two images for linux/amd64"):
        pick(many, "x", wanted)  # no manifest is read


@pytest.mark.parametrize(
    "special",
    [
        {"artifactType": "application/vnd.amazon.soci.index.v2+json"},  # soci convert
        {"platform": {"architecture": "amd64", "os": "linux", "os.features": ["nydus.remoteimage.v1"]}},  # nydusify
    ],
)
def test_what_is_for_some_programs_alone_comes_after_the_image(special: dict[str, Any]) -> None:
    """All others take the first one."""
    image, other, wanted = entry("amd64", number=1), entry("amd64", number=2) | special, Platform.of("amd64")
    assert pick([image, other, entry("arm64", number=3)], "x", wanted).digest == f"{1:064x}"
    assert pick([other], "x", wanted).digest == f"{2:064x}"
    assert pick([entry("amd64", "v2", number=5), other], "x", wanted).digest == f"{2:064x}"
    zstd = other | {"annotations": {"io.github.containers.compression.zstd": "true"}}
    one, two = ({"config": {"digest": f"sha256:{number:064x}", "size": 1, "mediaType": "x"}} for number in (7, 8))
    with pytest.raises(InputError, match="has two images for linux/amd64"):
        pick([image, zstd], "x", wanted, {1: one, 2: two})
    for listed in ([other, image], [image, entry("amd64", number=4), other], [entry("amd64", "v1", number=4), other]):
        with pytest.raises(InputError, match="has two images for linux/amd64"):
            pick(listed, "x", wanted)


def test_of_several_entries_the_same_one_is_chosen_as_by_podman() -> None:
    plain, second, third = entry("amd64", number=1), entry("amd64", "v2", number=2), entry("amd64", "v3", number=3)
    unnamed = {key: value for key, value in entry("x", number=4).items() if key != "platform"}
    for listed, text, number in (
        ([second, plain], "", 1),
        ([unnamed, plain], "", 1),
        ([unnamed, second], "", 4),
        ([third, entry("amd64", "v1", number=5)], "amd64", 5),
        ([plain, second, third], "linux/amd64/v3", 3),
        ([entry("arm64", "v9", number=6), entry("arm64", "v8", number=7)], "arm64", 7),
        ([third], "", 3),
    ):
        wanted = Platform.of(text) if text else Platform("amd64")
        assert pick(listed, "x", wanted).digest == f"{number:064x}"
    with pytest.raises(ConflictError, match="because it is made for linux/amd64/v2, linux/amd64/v3"):
        pick([second, third], "x", Platform("amd64"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {}),
        ({"artifactType": "application/x"}, {}),
        ({"platform": {"os": "linux", "architecture": "amd64"}}, {}),
        (
            {"platform": {"os": "linux", "architecture": "amd64"}},
            {"platform": {"os": "linux", "architecture": "amd64"}},
        ),
    ],
)
def test_two_images_of_one_name_in_a_layout_are_refused(first: dict[str, Any], second: dict[str, Any]) -> None:
    """skopeo takes the first one, containerd the last."""
    names = {"annotations": {"org.opencontainers.image.ref.name": "v1"}}

    def index(*changes: dict[str, Any]) -> dict[str, Any]:
        parts = [
            {"digest": f"sha256:{n:064x}", "size": 1, "mediaType": "application/vnd.oci.image.manifest.v1+json"}
            for n in range(len(changes))
        ]
        return {"manifests": [part | names | change for part, change in zip(parts, changes, strict=True)]}

    for pair in ((first, second), (second, first)):
        with pytest.raises(InputError, match="two entries of this name"):
            find_entries(index(*pair), "v1", "oci:x:v1")
    same = index(first, second)
    same["manifests"][1]["digest"] = same["manifests"][0]["digest"]
    other = {"platform": {"os": "linux", "architecture": "arm64"}}
    several = index({"platform": {"os": "linux", "architecture": "amd64"}}, other)
    attested = index(
        {"platform": {"os": "linux", "architecture": "amd64"}},
        *[{"platform": {"os": "unknown", "architecture": "unknown"}}] * 2,
    )
    for item in attested["manifests"]:
        del item["annotations"]
    assert len(find_entries(attested, "", "oci:x")) == 3
    for variant in ("v1", "v3"):
        with pytest.raises(InputError, match="two entries of this name"):
            platform = {"os": "linux", "architecture": "amd64"}
            find_entries(index({"platform": platform}, {"platform": {**platform, "variant": variant}}), "v1", "x")
    arm = {"os": "linux", "architecture": "arm"}
    variants = index({"platform": {**arm, "variant": "v6"}}, {"platform": {**arm, "variant": "v7"}})
    for fine in (same, several, variants):
        assert len(find_entries(fine, "v1", "oci:x:v1")) == 2


def test_a_damaged_entry_beside_another_one_is_no_fault(tmp_path: Path) -> None:
    """The digests of both are read before one is chosen."""
    names = {"annotations": {"org.opencontainers.image.ref.name": "v1"}}
    listed = [entry("amd64", number=1) | names, entry("arm64", number=2) | names | {"digest": "sha256:x"}]
    (tmp_path / "oci-layout").write_text("{}")
    (tmp_path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": listed}))
    with pytest.raises(InputError, match="is damaged"), open_layout(tmp_path, "v1", Platform.of("amd64")):
        pass
