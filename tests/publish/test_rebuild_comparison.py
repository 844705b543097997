"""The comparison of a rebuild with an image: digests of layers, and the first file that differs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.store.store import Store
from envbuild.publish.published_image import PublishedLayer
from envbuild.publish.rebuild import comparison
from envbuild.publish.rebuild.claim import Claim
from envbuild.publish.rebuild.comparison import HIDDEN, SAME_FILES, Part, compare_files, compare_layers, find_first
from envbuild.publish.rebuild.temporary_store import open_temporary_store
from tests.support.foreign_images import workspace
from tests.support.image_pair import AFTER, BEFORE, image
from tests.support.image_pair import pair as pair
from tests.support.packs import file
from tests.support.stored_layers import files, layer

pytestmark = pytest.mark.unit


def claim(path: Path, *layers: PublishedLayer) -> Claim:
    return Claim("app", "", "", "sha256:1", layers, "2", lambda _: path)


def test_the_first_path_of_two_files_is_named_and_in_what_it_differs(pair: tuple[str, str], tmp_path: Path) -> None:
    one, other = map(Path, pair)
    assert compare_files(one, one) == ("", SAME_FILES)
    assert compare_files(one, other) == ("etc/envbuild/lock.yaml", "differs in content")
    more = image(tmp_path / "more.sqsh", [*BEFORE, file(b"etc/a", b"x")])
    assert compare_files(one, more) == ("etc/a", "is only in the rebuild")
    assert compare_files(more, one) == ("etc/a", "is only in the image")


def test_a_file_that_follows_from_others_is_named_last(tmp_path: Path) -> None:
    record = b"etc/envbuild/export.json"
    sides = [
        image(tmp_path / f"{number}.sqsh", [*BEFORE, file(record, b"%d" % number), file(b"srv/x", text)])
        for number, text in ((1, b"a"), (2, b"b"), (3, b"a"))
    ]
    assert compare_files(sides[0], sides[1]) == ("srv/x", "differs in content")
    assert compare_files(sides[0], sides[2]) == (record.decode(), "differs in content")
    assert len(AFTER) > 1


def test_layers_are_compared_by_their_place(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    one, two = layer(store, "one", files(a="1")), layer(store, "two", files(b="1"))
    listed = [PublishedLayer("", 0, item.diff_id, "") for item in (one, two)]
    parts = compare_layers(claim(tmp_path, *listed), [one, two])
    assert [(part.unit, part.equal) for part in parts] == [("one", True), ("two", True)]
    assert [part.equal for part in compare_layers(claim(tmp_path, *listed), [two, one])] == [False, False]
    short = compare_layers(claim(tmp_path, *listed), [one])
    assert [(part.claimed != "", part.rebuilt != "", part.equal) for part in short] == [
        (True, True, True),
        (True, False, False),
    ]


def test_a_file_that_upper_layers_hide_is_named_if_the_layer_can_be_read(tmp_path: Path, pair: tuple[str, str]) -> None:
    """The squashfs files are equal: only the layers show it."""
    at, other = workspace(tmp_path / "a"), workspace(tmp_path / "b")
    old, new = layer(at.store, "one", files(gone="1", same="1")), layer(other.store, "one", files(gone="2", same="1"))
    parts = [Part("layer", old.diff_id, new.diff_id, "one")]
    path = Path(pair[0])
    found = find_first(claim(path, PublishedLayer("", 0, old.diff_id, "one")), parts, path, at, other, tmp_path)
    assert found and (found.path, found.what, found.unit) == ("gone", "differs in content", "one")
    without = workspace(tmp_path / "c")
    found = find_first(claim(path, PublishedLayer("", 0, old.diff_id, "")), parts, path, without, other, tmp_path)
    assert found and (found.path, found.what) == ("", HIDDEN)
    assert find_first(claim(path), [replace(parts[0], rebuilt=old.diff_id)], path, at, other, tmp_path) is None


def test_a_capability_alone_is_named(tmp_path: Path, pair: tuple[str, str]) -> None:
    at, other = workspace(tmp_path / "a"), workspace(tmp_path / "b")
    made = []
    for place, value in ((at, b"1"), (other, b"2")):

        def fill(tree: Path, value: bytes = value) -> None:
            (tree / "program").write_text("x")
            os.setxattr(tree / "program", "user.note", value)

        made.append(layer(place.store, "one", fill).diff_id)
    found = find_first(
        claim(Path(pair[0]), PublishedLayer("", 0, made[0], "one")),
        [Part("layer", made[0], made[1], "one")], Path(pair[0]), at, other, tmp_path,
    )  # fmt: skip
    assert found and (found.path, found.what) == ("program", "differs in attributes")


def test_the_store_answers_for_no_layer_that_another_image_names(tmp_path: Path, pair: tuple[str, str]) -> None:
    """It may be of a private image of this user, and the answer can be published."""
    at, other = workspace(tmp_path / "a"), workspace(tmp_path / "b")
    private, new = layer(at.store, "one", files(secret="1")), layer(other.store, "one", files(same="1"))
    parts = [Part("layer", private.diff_id, new.diff_id, "one")]
    one = replace(claim(Path(pair[0]), PublishedLayer("", 0, private.diff_id, "one")), spec="schema: 1\n")
    found = find_first(one, parts, Path(pair[0]), at, other, tmp_path)
    assert found and (found.path, found.what) == ("", HIDDEN)


def test_a_layer_of_another_image_is_read_from_its_place_alone(
    tmp_path: Path, pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry may list the digest of a blob that this store has."""
    at, other = workspace(tmp_path / "a"), workspace(tmp_path / "b")
    new = layer(other.store, "one", files(same="1"))
    listed = PublishedLayer("", 0, "sha256:" + "1" * 64, "one")
    source = replace(claim(Path(pair[0]), listed), spec="schema: 1\n", source="docker://127.0.0.1:1/app:1")

    class Asked(Exception):
        pass

    def open_alone(*_: object, alone: bool = False, **__: object) -> object:
        raise Asked(alone)

    monkeypatch.setattr(comparison, "open_source", open_alone)
    with pytest.raises(Asked, match="True"):
        find_first(source, [Part("layer", listed.diff_id, new.diff_id, "one")], Path(pair[0]), at, other, tmp_path)


def test_a_temporary_store_has_nothing_and_goes_away(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    layer(store, "one", files(a="1"))
    with open_temporary_store(store) as other:
        assert not list((other.root / "layers").iterdir()) and other.log("x", "k" * 20).parent == store.root / "logs"
        assert other.root.is_relative_to(store.tmp)
    assert not list(store.tmp.iterdir())
