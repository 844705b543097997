"""Third-party layers: the tree on disk, the tree that the lock reads, and nothing outside of either."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from envbuild.core.console import SilentReporter
from envbuild.core.errors import InputError
from envbuild.core.store.store import Store
from envbuild.lock.base_image.file_tree import ImageTree, read_image_tree
from envbuild.oci.layers.apply import apply_layers
from envbuild.oci.layers.changeset import Changeset
from envbuild.oci.tar.reader import LayerError
from tests.support import local_registry as kit
from tests.support.examples import examples
from tests.support.local_registry import file, folder, hardlink, special, symlink, tar

pytestmark = pytest.mark.unit
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def applied(tmp_path: Path, *layers: bytes) -> Path:
    """Return the tree on disk that layers make."""
    tree = tmp_path / "tree"
    tree.mkdir()
    paths = []
    for number, content in enumerate(layers):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(content)
        paths.append(path)
    apply_layers(paths, tree)
    return tree


def listed(tree: Path) -> dict[str, str]:
    """Path → kind and content, without times and owners."""
    found = {}
    for place, folders, names in os.walk(os.fsencode(tree)):
        for name in [*folders, *names]:
            full = place + b"/" + name
            mode = os.lstat(full).st_mode
            what = (
                "dir"
                if stat.S_ISDIR(mode)
                else f"-> {Path(os.fsdecode(full)).readlink()}"
                if stat.S_ISLNK(mode)
                else "file"
            )
            found[os.fsdecode(os.path.relpath(full, os.fsencode(tree)))] = what
    return found


def tree_in_memory(*layers: bytes) -> dict[str, str]:
    """Return the same of the tree in memory."""
    tree = ImageTree()
    for content in layers:
        tree.apply(io.BytesIO(content))
    found = {}

    def walk(node: dict[str, Any], above: str) -> None:
        for name, child in node.items():
            what = "dir" if isinstance(child, dict) else f"-> {child}" if isinstance(child, str) else "file"
            found[above + name] = what
            if isinstance(child, dict):
                walk(child, f"{above}{name}/")

    walk(tree.root, "")
    return found


@as_root
def test_whiteouts_and_opaque_folders(tmp_path: Path) -> None:
    first = tar(folder("a"), file("a/one"), file("a/two"), folder("a/sub"), file("a/sub/old"), file("b/x"), file("c"))
    # Marks do not apply to entries of the same layer, before or after them.
    second = tar(
        file("a/sub/new"), file("a/.wh..wh..opq"), file("a/three"), file(".wh.c"), file("c"), file("b/y"), file(".wh.b")
    )
    tree = applied(tmp_path, first, second)
    expected = {
        "a": "dir",
        "a/sub": "dir",
        "a/sub/new": "file",
        "a/three": "file",
        "b": "dir",
        "b/y": "file",
        "c": "file",
    }
    assert listed(tree) == expected == tree_in_memory(first, second)
    assert not any(stat.S_ISCHR(path.lstat().st_mode) for path in tree.rglob("*"))
    assert os.listxattr(tree / "a") == []


@as_root
def test_attributes(tmp_path: Path) -> None:
    odd = file("odd", b"x", 0o4711, 7)
    odd[0].pax_headers = {
        "SCHILY.xattr.user.note": "n",
        "SCHILY.xattr.trusted.x": "y",
    }
    later = folder("a")
    later[0].mtime = kit.EPOCH + 5
    tree = applied(
        tmp_path,
        tar(
            folder("a", 0o750), file("a/one"), odd, special("null", tarfile.CHRTYPE), special("fifo", tarfile.FIFOTYPE)
        ),
        tar(file("a/two"), hardlink("a/three", "a/one"), file("implied/x")),
        tar(file("a/two", b"other")),
    )
    assert stat.S_IMODE((tree / "a").stat().st_mode) == 0o750
    assert (tree / "a").stat().st_mtime == kit.EPOCH, "files that come and go do not change the time of their folder"
    assert (tree / "implied").stat().st_mtime == 0
    assert (tree / "a/one").stat().st_nlink == 2 and (tree / "a/two").stat().st_nlink == 1
    status = (tree / "odd").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (0o4711, 7, 7)
    assert os.listxattr(tree / "odd") == ["user.note"]
    assert not (tree / "null").exists() and (tree / "fifo").is_fifo()


@as_root
def test_links_to_folders_are_followed_inside(tmp_path: Path) -> None:
    """An absolute link, and one with more ``..`` than there are folders, end in the tree."""
    first = tar(
        folder("usr/lib"), symlink("lib", "usr/lib"), symlink("abs", "/usr"), symlink("up", "../../../../usr/new")
    )
    second = tar(file("lib/x/one"), file("abs/two"), file("up/three"), file("abs/lib/x/.wh.gone"))
    tree = applied(tmp_path, first, second)
    assert listed(tree) == tree_in_memory(first, second)
    assert {name for name, what in listed(tree).items() if what == "file"} == {
        "usr/lib/x/one",
        "usr/two",
        "usr/new/three",
    }
    assert (tree / "lib").is_symlink()


ESCAPES = {
    "a path": [file("../out")],
    "a path in the middle": [file("a/../../out")],
    "a whiteout of the folder above": [file("a/.wh...")],
    "a whiteout of the folder itself": [folder("a"), file("a/.wh..")],
    "a whiteout without a name": [folder("a"), file("a/.wh.")],
    "below a whiteout": [file(".wh.a/x")],
    "a hard link by a path": [hardlink("x", "../secret")],
    "a file as a folder": [file("a"), file("a/b")],
    "links in a circle": [symlink("a", "b"), symlink("b", "a"), file("a/x")],
    "links that double": [
        symlink("a0", "."), *(symlink(f"a{n}", f"a{n - 1}/a{n - 1}") for n in range(1, 40)), file("a39/x"),
    ],
    "a hard link to nothing": [hardlink("x", "nothing")],
}  # fmt: skip


@as_root
@pytest.mark.parametrize("name", ESCAPES)
def test_nothing_leaves_the_tree(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret")
    with pytest.raises(InputError):
        applied(tmp_path, tar(*ESCAPES[name]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.tar", "secret", "tree"]
    assert not any(path.is_file() and path.read_bytes() == b"secret" for path in (tmp_path / "tree").rglob("*"))


@as_root
@pytest.mark.parametrize(
    "entries",
    [
        [symlink("x", "{out}"), hardlink("y", "x/secret")],
        [symlink("x", "{out}/secret"), file("x", b"new")],
        [symlink("x", "{out}"), folder("x"), file("x/new")],
        [symlink("x", "{out}"), file("x/secret", b"new")],
        [symlink("x", "{out}"), file("x/.wh.secret")],
        [symlink("x", "{out}"), file("x/.wh..wh..opq")],
        [symlink("x", "{out}/secret"), hardlink("y", "x"), file("y", b"new")],
        [symlink("x", "{out}/secret"), hardlink("y", "x"), special("y", tarfile.FIFOTYPE)],
    ],
)
def test_files_outside_are_unchanged(tmp_path: Path, entries: Sequence[tuple[tarfile.TarInfo, bytes]]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "secret").write_text("secret")
    (out / "secret").chmod(0o600)
    for info, _ in entries:
        info.linkname = info.linkname.replace("{out}", str(out))
    with contextlib.suppress(InputError):
        applied(tmp_path, tar(*entries))
    assert [path.name for path in out.iterdir()] == ["secret"]
    status = (out / "secret").stat()
    assert (out / "secret").read_text() == "secret" and status.st_nlink == 1 and stat.S_IMODE(status.st_mode) == 0o600


NAMES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("/".join)
MARKS = st.sampled_from([".wh.a", ".wh.b", ".wh..wh..opq", ".wh..wh.plnk"])
TARGETS = st.sampled_from(["a", "b", "../b", "/c", "/a/b", "../../..", "nowhere/x"])
ENTRIES = st.one_of(
    NAMES.map(file),
    NAMES.map(folder),
    st.builds(lambda above, mark: file(f"{above}/{mark}"), NAMES, MARKS),
    MARKS.map(file),
    st.builds(symlink, NAMES, TARGETS),
    st.builds(hardlink, NAMES, NAMES),
)


@as_root
@examples(100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(ENTRIES, max_size=8), min_size=1, max_size=4))
@pytest.mark.slow_unit
def test_the_lock_and_the_build_see_the_same_tree(
    tmp_path: Path, layers: list[list[tuple[tarfile.TarInfo, bytes]]]
) -> None:
    """The tree in memory is the tree on disk; both refuse the same layers."""
    import tempfile

    contents = [tar(*entries) for entries in layers]
    with tempfile.TemporaryDirectory(dir=tmp_path) as work:
        try:
            on_disk: object = listed(applied(Path(work), *contents))
        except InputError:
            on_disk = "refused"
    try:
        in_memory: object = tree_in_memory(*contents)
    except InputError:
        in_memory = "refused"
    assert on_disk == in_memory


@as_root
@pytest.mark.parametrize("below", ["d", "d/e/f"])
def test_each_folder_is_covered_once(tmp_path: Path, below: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer of 34 kB with 4000 opaque whiteouts of one folder, which has 4000 files, hid 16 million names."""
    hidden = []
    hide = Changeset.hide

    def counted(tree: Changeset, path: bytes) -> None:
        hidden.append(path)
        hide(tree, path)

    monkeypatch.setattr(Changeset, "hide", counted)
    first = tar(folder("d"), file("d/old"))
    marks = [file(f"{name}/.wh..wh..opq") for name in ("d", below)] * 100
    second = tar(*(file(f"{below}/{number}") for number in range(100)), *marks, *[file(f".wh.{below[:1]}")] * 100)
    seen = listed(applied(tmp_path, first, second))
    assert len(seen) == 100 + below.count("/") + 1 and seen == tree_in_memory(first, second)
    assert len(hidden) < 2 * 2 * 110  # of both trees; each whiteout of a name is one


@as_root
@pytest.mark.parametrize("form", ["memory", "disk"])
def test_paths_through_very_many_folders_end(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that is replaced again and again, each time with a file below 300 folders behind it."""
    monkeypatch.setattr("envbuild.oci.layers.changeset.MAX_LOOKUPS", 2 << 20)
    deep = "d/" * 300
    content = tar(*(entry for n in range(100) for entry in (symlink("l", str(n)), file(f"{deep}{n}"))))
    with pytest.raises((LayerError, InputError), match="its paths lead through too many folders"):
        tree_in_memory(content) if form == "memory" else applied(tmp_path, content)
    fine = tar(*(entry for n in range(10) for entry in (symlink("l", str(n)), file(f"{deep}{n}"))))
    assert len(tree_in_memory(fine)) == 311


@as_root
def test_a_link_that_another_layer_led_through_may_be_deleted(tmp_path: Path) -> None:
    layers = [tar(folder("d"), symlink("l", "d"), file("l/x")), tar(file(".wh.l"))]
    assert listed(applied(tmp_path, *layers)) == tree_in_memory(*layers) == {"d": "dir", "d/x": "file"}


@as_root
def test_the_time_of_a_deleted_folder_is_not_set_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "outside/b").mkdir(parents=True)
    before = [(tmp_path / path).stat().st_mtime_ns for path in ("outside", "outside/b")]
    tree = applied(tmp_path, tar(folder("a"), folder("a/b"), file("a/b/x"), symlink("a", str(tmp_path / "outside"))))
    assert (tree / "a").is_symlink()
    assert [(tmp_path / path).stat().st_mtime_ns for path in ("outside", "outside/b")] == before


def test_layers_that_end_too_early(tmp_path: Path) -> None:
    whole = tar(*(file(f"file{number}", b"content" * 100) for number in range(20)))
    for name, content in (
        ("cut in a file", whole[:5000]),
        ("cut in a header", whole[: 1536 * 3 + 100]),
        ("no header", whole[: 1536 * 3] + b"x" * 1024),
        ("no tar", b"hello" * 1000),
        ("cut gzip", kit.gzip.compress(whole)[:-200]),
        ("no gzip", b"\x1f\x8b\x08\x00" + b"x" * 1000),
        ("cut zstd", kit.zstandard.compress(whole)[:-50]),
        ("no zstd", b"\x28\xb5\x2f\xfd" + b"x" * 1000),
        ("gzip and more", kit.gzip.compress(whole) + b"more"),
    ):
        store = Store.open(tmp_path / name.replace(" ", "-"))
        sha256 = kit.sha256(content)
        store.blob(sha256).write_bytes(content)
        with pytest.raises(InputError, match=r"^layer 1 of the base image ") as caught:
            read_image_tree("0" * 64, [sha256], store, SilentReporter())
        assert "cannot be unpacked: " in caught.value.message, name
    for content in (b"", tar(), whole.rstrip(b"\0") if not whole.rstrip(b"\0")[-1:] else whole[:-1024]):
        store = Store.open(tmp_path / f"good{len(content)}")
        sha256 = kit.sha256(content)
        store.blob(sha256).write_bytes(content)
        read_image_tree("0" * 64, [sha256], store, SilentReporter())


def test_the_lists_of_packages_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small layer may hold many long ones; the tree of an image is in memory."""
    folder_name = "usr/lib/python3/dist-packages"
    packages = [file(f"{folder_name}/p{number}-1.dist-info/METADATA", bytes(2 << 20)) for number in range(3)]
    tree = ImageTree()
    tree.apply(io.BytesIO(tar(*packages)))
    assert len(tree.text(f"/{folder_name}/p0-1.dist-info/METADATA") or "") == 1 << 20
    monkeypatch.setattr("envbuild.lock.base_image.file_tree.ALL", 2 << 20)
    with pytest.raises(InputError):
        ImageTree().apply(io.BytesIO(tar(*packages)))


@pytest.mark.parametrize("damage", ["a flipped bit", "nested too deeply", "too large", "a list", "no object", "a FIFO"])
def test_a_damaged_cache_of_a_tree_is_made_again(damage: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    content = tar(folder("etc"), file("etc/os-release", b"ID=debian"))
    layer = hashlib.sha256(content).hexdigest()
    store.blob(layer).write_bytes(content)

    def text() -> str | None:
        return read_image_tree("0" * 64, [layer], store, SilentReporter()).text("/etc/os-release")

    assert text() == "ID=debian"
    (path,) = (store.root / "base").iterdir()
    good = path.read_bytes()
    if damage == "a flipped bit":
        for at in range(10, len(good), 5):
            path.write_bytes(good[:at] + bytes([good[at] ^ 0x5A]) + good[at + 1 :])
            assert text() == "ID=debian"
        return
    if damage == "a FIFO":
        path.unlink()
        os.mkfifo(path)
    else:
        other = b'{"format": 1, "root": {}}'
        if damage == "too large":
            monkeypatch.setattr("envbuild.lock.base_image.file_tree.LARGEST_CACHED", 1000)
            other += bytes(b" " * 1000)
        elif damage == "nested too deeply":
            other = b'{"format": 1, "root": ' + b'{"a": ' * 100_000 + b"{}" + b"}" * 100_001
        elif damage == "a list":
            other = b'{"format": 1, "root": {"a": []}}'
        else:
            other = b"[]"
        path.write_bytes(kit.gzip.compress(other))
    assert text() == "ID=debian"
    assert path.read_bytes() == good


def test_the_names_of_all_layers_of_a_tree_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = ImageTree()
    tree.apply(io.BytesIO(tar(file("a"), file("b"))))
    monkeypatch.setattr("envbuild.oci.tar.name_count.MAX_ENTRIES", 3)
    with pytest.raises(InputError, match="the image has 4 entries or more; the limit is 3"):
        tree.apply(io.BytesIO(tar(file("c"), file("d"))))


def test_a_second_name_of_a_package_list_is_not_a_copy_of_it() -> None:
    """60 kB of a layer could have ten thousand names of a file of 60 MiB, each with its content in the cached tree."""
    status = "var/lib/dpkg/status"
    tree = ImageTree()
    tree.apply(io.BytesIO(tar(file(status, b"text"), hardlink("h", status), hardlink("etc/os-release", status))))
    assert (tree.node("h"), tree.node("etc/os-release"), tree.total) == (None, b"text", 8)
