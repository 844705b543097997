"""Differences of two images: every line of the text, and the data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.lock.lockfile import parse_lock
from envbuild.lock.model import Lock
from envbuild.squashfs.read.tree import SquashTree
from envbuild.verify.contents import diff
from envbuild.verify.contents.diff import Side, compare_sections, diff_images
from envbuild.verify.contents.metadata import read_metadata
from tests.support.image_pair import AFTER, BEFORE, RC, SITE, image, lock_text
from tests.support.image_pair import pair as pair  # a fixture
from tests.support.packs import file, hard, pack
from tests.support.squashfs_image import write_image

pytestmark = pytest.mark.unit
FOREIGN = {b"etc/envbuild/lock.yaml", b"etc/envbuild/resolution.json"}


def body(text: str) -> list[str]:
    """Return a text without the two lines that name the files."""
    assert text.splitlines()[0].startswith("A  ") and text.splitlines()[1].startswith("B  ")
    return text.splitlines()[2:]


def test_every_line(pair):
    found = diff_images(*pair, None, files=True)  # type: ignore[arg-type]  # files need no project
    lines = body(found.text)
    assert lines[0] == (
        "different: 3 components, 1 Python package, 1 source, 2 variables, 1 part of the start, 3 paths added, "
        "3 paths removed, 11 paths changed, 1 path with another time only, 1.7 MB → 1.9 MB unpacked"
    )
    assert lines[1:17] == [
        "components",
        "  - gone 1",
        "  + new 2",
        "  ~ ucx 1.19 → 1.20",
        "Python packages",
        "  ~ numpy 2.0 → 2.1",
        "sources",
        f"  ~ ucx.tar github:openucx/ucx@{'a' * 40} → github:openucx/ucx@{'b' * 40}",
        "environment",
        "  ~ LANG C → C.UTF-8",
        "  + NEW 1",
        "start",
        "  ~ command '/bin/bash' '-l' → '/bin/bash' '-i'",
        "folders",
        "   +200.0 kB  opt/venv/lib/python3.13/site-packages/numpy  1.0 MB → 1.2 MB, 1 changed",
        "       -70 B  opt/ucx  700.1 kB → 700.0 kB, 1 removed, 2 changed",
    ]
    paths = lines[lines.index("paths") + 1 :]
    size = {name: len(content) for name, content in ((m.path, c) for m, c in [*BEFORE, *AFTER])}
    lock, before = size[b"etc/envbuild/lock.yaml"], len(BEFORE[3][1])
    assert lock == before  # the text of a lock with another version is as long
    assert paths == [
        f"  ~ etc/envbuild/lock.yaml: content {lock} bytes → {lock} bytes",
        f"  ~ etc/envbuild/resolution.json: content {len(BEFORE[4][1])} bytes → {len(AFTER[4][1])} bytes",
        "  ~ etc/environment: content 17 bytes → 29 bytes",
        f"  ~ etc/rc: content {len(RC)} bytes → {len(RC)} bytes",
        "  ~ opt/link: target ucx/old → ucx/lib",
        "  ~ opt/ucx/lib/libucp.so: content 400000 bytes → 400000 bytes",
        "  ~ opt/ucx/lib/libucp.so.0: content 400000 bytes → 400000 bytes",
        "  - opt/ucx/old: file, 70 B",
        f"  ~ {SITE.decode()}numpy/core.so: content 1000000 bytes → 1200000 bytes",
        f"  - {SITE.decode()}numpy-2.0.dist-info: directory",
        f"  - {SITE.decode()}numpy-2.0.dist-info/METADATA: file, 1 B",
        f"  + {SITE.decode()}numpy-2.1.dist-info: directory",
        f"  + {SITE.decode()}numpy-2.1.dist-info/METADATA: file, 1 B",
        "  ~ srv/is: kind file → directory",
        "  + srv/new\\nline: file, 10 B",
        "  ~ srv/one: mode 0644 → 0600, owner 3:0 → 4:0",
        "  t srv/two: time 5 → 6",
        f"  ~ var/lib/dpkg/status: content {size[b'var/lib/dpkg/status']} bytes → {size[b'var/lib/dpkg/status']} bytes",
    ]


def test_the_data(pair):
    data = diff_images(*pair, None).data  # type: ignore[arg-type]
    assert not data["equal"]
    assert data["components"] == {"added": {"new": "2"}, "removed": {"gone": "1"}, "changed": {"ucx": ["1.19", "1.20"]}}
    assert data["debian"] == {} and data["base"] == {}  # by the locks; packages of builds do not count
    assert data["files"]["fields"] == {"content": 8, "kind": 1, "mode": 1, "owner": 1, "target": 1, "time": 1}
    assert data["folders"]["opt/ucx"] == {"before": 700_070, "after": 700_000, "changed": 2, "removed": 1}
    assert len(data["paths"]) == 17 + 1
    assert data["before"]["image"] == "small" and data["before"]["squashfs"]["codec"] == "zstd"
    json.dumps(data)


def test_third_party_images_are_compared_by_installed_packages(tmp_path):
    """No lock inside: dpkg's own list, and the folders of metadata that Python packages have."""
    layers = [[item for item in layer if item[0].path not in FOREIGN] for layer in (BEFORE, AFTER)]
    names = [str(image(tmp_path / f"{number}.sqsh", layer)) for number, layer in enumerate(layers)]
    data = diff_images(*names, None).data  # type: ignore[arg-type]
    assert data["debian"] == {"added": {}, "removed": {}, "changed": {"libc6": ["2.41", "2.42"]}}
    assert data["python"] == {"added": {}, "removed": {}, "changed": {"numpy": ["2.0", "2.1"]}}
    assert data["components"] == data["sources"] == {}
    one_lock = diff_images(names[0], str(image(tmp_path / "c.sqsh", BEFORE)), None).data  # type: ignore[arg-type]
    assert one_lock["debian"] == one_lock["python"] == {}
    assert one_lock["components"]["added"] == {"gone": "1", "ucx": "1.19"}


def test_compression_of_a_file_is_not_a_difference(tmp_path):
    made = pack(tmp_path / "a.pack", BEFORE, block=4096, codec="gzip", level=9)
    one = write_image([made], tmp_path / "a.sqsh", epoch=1000, all_root=False).path
    found = diff_images(str(one), str(image(tmp_path / "b.sqsh", BEFORE)), None)  # type: ignore[arg-type]
    assert found.data["equal"]
    # the root, folders that no layer names, and the members
    assert body(found.text) == ["equal: 37 paths with the same content, 1.7 MB"]


def test_few_changed_paths_are_listed_without_an_option(tmp_path):
    names = [
        str(image(tmp_path / f"{number}.sqsh", [file(b"f%d" % at, b"x" * at * number) for at in range(1, count)]))
        for number, count in ((1, 5), (2, 5))
    ]
    assert body(diff_images(*names, None).text)[-4:] == [  # type: ignore[arg-type]
        f"  ~ f{at}: content {at} bytes → {2 * at} bytes" for at in range(1, 5)
    ]
    many = str(image(tmp_path / "many.sqsh", [file(b"f%d" % at, b"") for at in range(30)]))
    lines = body(diff_images(names[0], many, None).text)  # type: ignore[arg-type]
    assert lines[-1] == f"  every path: envbuild diff --files {names[0]} {many}"
    assert lines[0] == "different: 26 paths added, 4 paths changed, 10 B → 0 B unpacked"


def test_hard_links_and_attributes(tmp_path):
    one = [file(b"a", b"1", xattrs={b"user.x": b"1"}), hard(b"b", b"a")]
    other = [file(b"a", b"1", xattrs={b"user.x": b"2"}), file(b"b", b"1", xattrs={b"user.x": b"2"})]
    names = [str(image(tmp_path / f"{number}.sqsh", layer)) for number, layer in enumerate((one, other))]
    fields = [row["fields"] for row in diff_images(*names, None).data["paths"]]  # type: ignore[arg-type]
    assert fields == [{"attributes": ["user.x", "user.x"], "links": ["2", "1"]}] * 2


def test_locks_are_compared():
    """Two images that are not built."""
    one, other = (
        parse_lock(lock_text(*versions).decode(), Path("x.lock"))
        for versions in (("1.19", "2.0", "a" * 40), ("1.20", "2.1", "b" * 40))
    )
    found = compare_sections(Side("a", None, one), Side("b", None, other))
    assert {name: part["changed"] for name, part in found.items() if part} == {
        "components": {"ucx": ["1.19", "1.20"]},
        "python": {"numpy": ["2.0", "2.1"]},
        "sources": {"ucx.tar": [f"github:openucx/ucx@{'a' * 40}", f"github:openucx/ucx@{'b' * 40}"]},
    }
    assert not any(compare_sections(Side("a", None, one), Side("b", None, one)).values())


def test_locks_with_other_content_of_the_same_versions_are_different():
    """A package index may provide another wheel of a version, a host another tarball of a tag."""
    lock = parse_lock(lock_text("1.19", "2.0", "a" * 40).decode(), Path("x.lock"))
    assert lock.python_files and lock.sources

    def inputs(changed: Lock) -> dict[str, Any]:
        found = compare_sections(Side("a", None, lock), Side("b", None, changed))
        assert not any(part for name, part in found.items() if name != "inputs")
        return found["inputs"]

    wheels = {key: replace(file, sha256="f" * 64) for key, file in lock.python_files.items()}
    one = inputs(replace(lock, python_files=wheels))["changed"]
    assert one["python numpy"][1] == f"2.0 sha256:{'f' * 64}"
    sources = {key: replace(file, sha256="f" * 64) for key, file in lock.sources.items()}
    assert list(inputs(replace(lock, sources=sources))["changed"]) == ["source ucx.tar"]
    assert list(inputs(replace(lock, epoch=lock.epoch + 1))["changed"]) == ["lock"]
    assert inputs(replace(lock, image="other", facts=("a",), releases={"debian:a/main": "b"})) == {}


def test_a_file_is_not_known_to_equal_a_lock(pair, monkeypatch):
    """What both state is the same; whether the bytes are is not known."""
    with SquashTree(Path(pair[0])) as tree:
        lock = read_metadata(tree).lock
    side = Side("small", None, lock)
    monkeypatch.setattr(diff, "find_side", lambda name, _: side if name == "small" else Side(name, Path(name), None))
    found = diff_images(pair[0], "small", None)  # type: ignore[arg-type]
    assert not any(found.data[name] for name in ("debian", "python", "sources", "inputs"))
    assert found.data["components"] and not found.data["equal"]  # those of the file's resolution
    monkeypatch.setattr(diff, "compare_sections", lambda *_: {key: {} for key in diff.SECTIONS})
    found = diff_images(pair[0], "small", None)  # type: ignore[arg-type]
    assert not found.data["equal"] and "\nnot known to be equal: only one of them is built\n" in found.text
