"""The units of an image that is signed: none of a cache that every user who can write it decides about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envbuild.build.engines.base import BuildOptions, BuildResult, build_units
from envbuild.core.console import SilentReporter
from envbuild.core.errors import EnvbuildError, SignatureError
from envbuild.core.store.json_files import write_sealed
from envbuild.core.store.records import write_record
from envbuild.core.store.store import Store
from envbuild.export.base_caches import caches_below, check_base_caches
from envbuild.export.built_image import (
    BuiltImage,
    ImageRecord,
    load_built_image,
    read_any_record,
    read_image_record,
    read_key,
)
from envbuild.lock.resolve import resolve_image
from envbuild.net.site import Site
from envbuild.net.unit_caches import UNKNOWN, UnitCache
from envbuild.publish.destination import parse_destination
from envbuild.publish.publish import publish_image
from envbuild.spec.project import Project
from envbuild.spec.workspace import Workspace
from tests.support.signed_images import Keys
from tests.support.stored_layers import files, layer

pytestmark = pytest.mark.unit

SPEC = """
schema: 1
description: an image
target: cpu
base: {base}
layers:
  python-packages: ["click==8.1.7"]
"""
OPEN = "ghcr.io/team/open"


def project(folder: Path, store: Path, *caches: UnitCache) -> Workspace:
    """Return the workspace of a project with the image `below`, and with `above` on top of it."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for name, base in (("below", "debian:13"), ("above", "below")):
        (folder / f"images/{name}.yaml").write_text(SPEC.format(base=base))
        (folder / f"images/{name}.lock").write_text(name)
    return Workspace(Project.find(folder), Site(store, caches=caches), Store.open(store), SilentReporter())


def built(
    name: str, at: Workspace, *caches: str, layers: Sequence[str] = (), base_caches: tuple[str, ...] = ()
) -> BuiltImage:
    """Return an image as it is read from the record of its build. `caches`: those of which units were taken; `layers`:
    of its base in the lock."""
    resolution = resolve_image(name, at)
    artifact = at.store.root / "artifacts" / f"{name}.sqsh"
    artifact.write_bytes(b"squashfs")
    made = ImageRecord(
        name, str(artifact), "0" * 64, "", "embedded", (), "", (), (), (), 1.0, caches=caches, base_caches=base_caches
    )
    key = read_key(resolution, at)
    assert key
    write_record(key.path, asdict(made))
    _, found = read_any_record(resolution, at)
    assert found and found.caches == caches
    nothing: Any = None
    lock: Any = SimpleNamespace(base_image=SimpleNamespace(layers=[(layer, 1, "") for layer in layers]))
    return BuiltImage(resolution, lock, nothing, found, (), key)


def sign(image: BuiltImage, at: Workspace, team: Keys) -> EnvbuildError:
    """Return the error of a publish with a signature; nothing is written."""
    to = at.store.root.parent / "published"
    with pytest.raises(EnvbuildError) as caught:
        publish_image(
            image, parse_destination(f"oci:{to}:t", "t"), at, compression="", move=False, layers=False, signer=team[0]
        )
    assert not list(to.rglob("index.json"))
    return caught.value


def test_an_image_of_units_of_a_cache_without_keys_is_not_signed(tmp_path: Path, team: Keys) -> None:
    at = project(tmp_path / "p", tmp_path / "store", UnitCache(OPEN))
    error = sign(built("below", at, OPEN), at, team)
    assert isinstance(error, SignatureError) and error.exit_code == 7 and OPEN in error.message
    assert error.hint == "envbuild make below --no-cache"


def test_a_cache_that_the_site_does_not_list_any_more_is_one_without_keys(tmp_path: Path, team: Keys) -> None:
    """Also one whose key was removed: nothing is known about those who write it."""
    signed = UnitCache("ghcr.io/team/cache", keys=(team[1],))
    at = project(tmp_path / "p", tmp_path / "store")
    assert isinstance(sign(built("below", at, *signed.names), at, team), SignatureError)


def test_an_image_on_top_of_one_from_such_a_cache_is_not_signed(tmp_path: Path, team: Keys) -> None:
    at = project(tmp_path / "p", tmp_path / "store", UnitCache(OPEN))
    built("below", at, OPEN)
    error = sign(built("above", at), at, team)
    assert isinstance(error, SignatureError) and "units of below" in error.message
    assert error.hint == "envbuild make below --no-cache && envbuild lock above && envbuild make above"


@pytest.mark.parametrize("removed", ["cache", "key"])
def test_an_image_is_not_used_after_the_site_removed_the_cache_of_its_units(
    tmp_path: Path, team: Keys, other: Keys, removed: str
) -> None:
    """Nor if the cache remains with another key. `run` builds its layers again, and the others name `make`."""
    signed = UnitCache("ghcr.io/team/cache", keys=(team[1],))
    at = project(tmp_path / "p", tmp_path / "store", signed)
    built("below", at, *signed.names)
    resolution = resolve_image("below", at)
    assert read_image_record(resolution, at)
    caches = () if removed == "cache" else (replace(signed, keys=(other[1],)),)
    at = replace(at, site=replace(at.site, caches=caches))
    assert read_image_record(resolution, at) is None


def test_the_cache_that_the_site_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envbuild.lock.update.current_lock", lambda *_: None)
    monkeypatch.setattr("envbuild.lock.model.lock_digest", lambda _: "")
    monkeypatch.setattr("envbuild.build.plan.planner.make_plan", lambda *_: None)
    listed = project(tmp_path / "p", tmp_path / "store", UnitCache(OPEN))
    built("below", listed, OPEN)
    assert load_built_image("below", listed).record.caches == (OPEN,)
    with pytest.raises(EnvbuildError, match=f"caches that the site does not list: {OPEN}") as caught:
        load_built_image("below", project(tmp_path / "p", tmp_path / "store"))
    assert caught.value.exit_code == 1 and caught.value.hint == "envbuild make below"


@pytest.mark.parametrize("rebuilt", [True, False])
@pytest.mark.parametrize("relation", ["caches", "built_with"])
def test_a_layer_of_such_a_cache_in_the_lock_is_found_after_the_image_below_was_built_again(
    tmp_path: Path, team: Keys, rebuilt: bool, relation: str
) -> None:
    """Or if it is not built here. Also one that was built with a unit of such a cache that is not in the image."""
    at = project(tmp_path / "p", tmp_path / "store", UnitCache(OPEN))
    made = replace(layer(at.store, "base", files(a="a")), **{relation: (OPEN,)})
    write_sealed(at.store.layer_path(made.diff_id) / "layer.json", asdict(made))
    if rebuilt:
        built("below", at)
    error = sign(built("above", at, layers=[made.hex]), at, team)
    assert isinstance(error, SignatureError) and "units of below" in error.message


def test_an_image_of_units_that_were_built_here_or_signed_is_signed(tmp_path: Path, team: Keys) -> None:
    from envbuild.publish.signing_units import check_signing_units

    signed = UnitCache("ghcr.io/team/cache", keys=(team[1],))
    at = project(tmp_path / "p", tmp_path / "store", UnitCache(OPEN), signed)
    for caches in ((), signed.names):
        built("below", at, *caches)
        check_signing_units(built("above", at, *caches), at)
    without = replace(at, site=replace(at.site, caches=(replace(signed, keys=()),)))
    with pytest.raises(SignatureError):  # the same place without keys
        check_signing_units(built("above", at, *signed.names), without)


def test_an_image_is_not_used_after_the_site_removed_the_cache_of_the_image_below(tmp_path: Path, team: Keys) -> None:
    """Its record names the caches of the images below it; `make` names what has to be made and locked again first."""
    at = project(tmp_path / "p", tmp_path / "store", UnitCache(OPEN))
    above = built("above", at, base_caches=(OPEN,))
    assert read_image_record(above.resolution, at)
    check_base_caches(above.resolution, above.lock, at)
    removed = project(tmp_path / "p", tmp_path / "store")
    assert read_image_record(above.resolution, removed) is None
    built("below", at, OPEN)
    with pytest.raises(EnvbuildError, match=f"caches that the site does not list: {OPEN}") as caught:
        check_base_caches(above.resolution, above.lock, removed)
    assert caught.value.hint == "envbuild make below; then lock and make again what is based on it, as above"


def test_the_record_of_an_image_names_the_caches_of_the_image_below(tmp_path: Path, team: Keys) -> None:
    """Also after the image below was built again, and the store has no layer of it."""
    at = project(tmp_path / "p", tmp_path / "store", UnitCache(OPEN))
    built("below", at)
    error = sign(built("above", at, base_caches=(OPEN,)), at, team)
    assert isinstance(error, SignatureError) and "units of below" in error.message


def test_the_caches_of_the_lowest_image_are_those_of_all_above(tmp_path: Path, team: Keys) -> None:
    """The lowest one was built again: the image in the middle has them from its own build."""
    at = project(tmp_path / "p", tmp_path / "store", UnitCache(OPEN))
    (tmp_path / "p/images/top.yaml").write_text(SPEC.format(base="above"))
    (tmp_path / "p/images/top.lock").write_text("top")
    built("below", at)
    built("above", at, base_caches=(OPEN,))
    top = built("top", at)
    assert caches_below(top.resolution, top.lock, at)["above"] == (OPEN,)
    assert isinstance(sign(top, at, team), SignatureError)


def test_a_layer_of_the_lock_that_the_store_has_no_record_of_is_not_signed(tmp_path: Path, team: Keys) -> None:
    """`store gc` removed it, and the image below was built again; its blob is there, so that an image is made of it."""
    at = project(tmp_path / "p", tmp_path / "store", UnitCache(OPEN))
    made = layer(at.store, "base", files(a="a"))
    above = built("above", at, layers=[made.hex])
    assert caches_below(above.resolution, above.lock, at) == {"below": ()}
    missing = built("above", at, layers=["1" * 64])
    assert caches_below(missing.resolution, missing.lock, at) == {"below": (UNKNOWN,)}
    check_base_caches(missing.resolution, missing.lock, at)  # it is used, and not signed
    assert isinstance(sign(built("above", at, base_caches=(UNKNOWN,)), at, team), SignatureError)


def test_the_layers_of_each_engine_name_the_caches_of_the_images_below(tmp_path: Path) -> None:
    """Also what is not known: the merged layer of a base names neither the image below nor its layers."""
    at = project(tmp_path / "p", tmp_path / "store", UnitCache(OPEN))
    made = layer(at.store, "base", files(a="a"))
    below = made, replace(layer(at.store, "own", files(b="b")), built_with=("r.example/signed",))
    write_sealed(at.store.layer_path(below[1].diff_id) / "layer.json", asdict(below[1]))

    def build(*names: str, base_caches: tuple[str, ...]) -> list[tuple[str, ...]]:
        engine: Any = SimpleNamespace(build=lambda *_: BuildResult("docker", below, names, ()))
        nothing: Any = None
        build_units(engine, nothing, at.store, at.reporter, BuildOptions(base_caches=base_caches))
        found = [at.store.find_layer(one.diff_id) for one in below]
        return [one.built_with for one in found if one]

    assert build("base", base_caches=()) == [(), ("r.example/signed",)]
    assert build(base_caches=(OPEN,)) == [(), ("r.example/signed",)]  # nothing was built now
    assert build("base", base_caches=(UNKNOWN, OPEN)) == [(UNKNOWN, OPEN), (UNKNOWN, OPEN, "r.example/signed")]
