"""The rules of layers, on packs' indexes alone."""

import time

import pytest

from envbuild.core.errors import EnvbuildError, InputError
from envbuild.oci.tar import name_count
from envbuild.oci.tar.member import Kind, Member
from envbuild.squashfs.pack.file import read_packs
from envbuild.squashfs.pack.index import FILE
from envbuild.squashfs.write import merge as merging
from envbuild.squashfs.write.direct_image import DirectImage
from envbuild.squashfs.write.merge import merge_packs
from tests.support.packs import file, folder, gone, hard, opaque, packs, paths, symlink

pytestmark = pytest.mark.unit


def merged(tmp_path, *layers):
    return merge_packs(packs(tmp_path, *layers))


def test_a_parent_that_is_a_symlink_below_is_followed(tmp_path):
    """merged-usr: lib/x goes to usr/lib/x, and lib remains a symlink."""
    base = [symlink(b"lib", b"usr/lib"), file(b"usr/lib/old")]
    tree = merged(tmp_path, base, [file(b"lib/x"), gone(b"lib/old")])
    assert paths(tree) == [b"lib", b"usr/", b"usr/lib/", b"usr/lib/x"]


def test_an_entry_for_the_symlink_itself_replaces_it(tmp_path):
    base = [symlink(b"lib", b"usr/lib"), file(b"usr/lib/old")]
    tree = merged(tmp_path, base, [folder(b"lib"), file(b"lib/x"), gone(b"lib/old"), opaque(b"lib")])
    assert paths(tree) == [b"lib/", b"lib/x", b"usr/", b"usr/lib/", b"usr/lib/old"]


@pytest.mark.parametrize(
    "target,place",
    [(b"/abs/dir", b"abs/dir/"), (b"../../../out", b"out/"), (b"new/dir", b"a/new/dir/"), (b"chain", b"a/real/")],
)
def test_symlinks_never_leave_the_tree(tmp_path, target, place):
    base = [symlink(b"a/link", target), symlink(b"a/chain", b"./real")]
    tree = merged(tmp_path, base, [file(b"a/link/x")])
    assert place + b"x" in paths(tree)


def test_symlink_loops_are_refused(tmp_path):
    with pytest.raises(EnvbuildError, match="links go in a circle"):
        merged(tmp_path, [symlink(b"a", b"b"), symlink(b"b", b"a")], [file(b"a/x")])


@pytest.mark.slow_unit
@pytest.mark.parametrize("entry", [file, gone, lambda path: hard(path + b"x", path)])
def test_symlinks_that_cost_minutes_are_refused(tmp_path, entry, monkeypatch):
    """Chains of long targets, gone through again for every entry: it is counted what they cost."""
    assert merging.MAX_FOLLOWED == 20_000_000
    monkeypatch.setattr(merging, "MAX_FOLLOWED", 2_000_000)
    base = [*(symlink(b"a%d" % n, b"./" * 2000 + b"a%d" % (n + 1)) for n in range(39)), folder(b"a39")]
    with pytest.raises(EnvbuildError, match="too many symlinks"):
        merged(tmp_path, base, [entry(b"a0/d%d/f" % number) for number in range(200)])


def test_the_symlink_cache_forgets(tmp_path):
    """A directory found through a link is not used after the link was replaced within the same layer."""
    base = [symlink(b"d", b"one"), folder(b"one"), folder(b"two")]
    tree = merged(tmp_path, base, [file(b"d/x"), symlink(b"d", b"two"), file(b"d/y")])
    assert [path for path in paths(tree) if path[-2:] in (b"/x", b"/y")] == [b"one/x", b"two/y"]


def test_last_entry_of_a_path_counts(tmp_path):
    tree = merged(
        tmp_path, [file(b"a", b"1"), folder(b"a"), file(b"a/b"), file(b"c"), hard(b"d", b"c"), file(b"d", b"22")]
    )
    assert paths(tree) == [b"a/", b"a/b", b"c", b"d"]
    assert tree.root.children[b"d"] is not tree.root.children[b"c"]


def sizes(tree):
    """Size of every file at the top, and which names are of one file."""
    found, groups = {}, {}
    for name, node in tree.root.children.items():
        if node.kind == FILE:
            found[name] = node.pack.index.columns["sizes"][node.row]
            groups.setdefault(id(node), []).append(name)
    return found, sorted(sorted(names) for names in groups.values() if len(names) > 1)


@pytest.mark.parametrize(
    "layers,expected,groups",
    [
        ([[file(b"a", b"1"), hard(b"b", b"a"), file(b"a", b"22")]], {b"a": 2, b"b": 1}, []),
        ([[file(b"a", b"1")], [hard(b"b", b"a"), file(b"a", b"22")]], {b"a": 2, b"b": 1}, []),
        ([[file(b"a", b"1")], [file(b"a", b"22"), hard(b"b", b"a")]], {b"a": 2, b"b": 2}, [[b"a", b"b"]]),
        ([[file(b"a", b"1"), hard(b"b", b"a"), file(b"b", b"22")]], {b"a": 1, b"b": 2}, []),
        ([[file(b"a", b"1"), hard(b"b", b"a"), gone(b"a")]], {b"a": 1, b"b": 1}, [[b"a", b"b"]]),
        ([[hard(b"b", b"a"), file(b"a", b"1")]], {b"a": 1, b"b": 1}, [[b"a", b"b"]]),
        ([[hard(b"b", b"a"), file(b"b", b"22"), file(b"a", b"1")]], {b"a": 1, b"b": 2}, []),
    ],
)
def test_a_hard_link_has_the_content_of_its_target_at_its_position(tmp_path, layers, expected, groups):
    assert sizes(merged(tmp_path, *layers)) == (expected, groups)


@pytest.mark.parametrize("rights", [{"mode": 0o4755}, {"mode": 0o2755}, {"xattrs": {b"security.capability": b"x"}}])
@pytest.mark.parametrize("below", [False, True], ids=["in its layer", "in a layer below"])
@pytest.mark.parametrize("first", [False, True], ids=["after", "before"])
def test_a_hard_link_has_no_other_rights_than_its_file(tmp_path, rights, below, first):
    """Docker and podman would, so that one digest would be two images."""
    link, target = hard(b"b", b"a", **rights), file(b"a", b"1", 0o755)
    layers = [[target], [link]] if below else [[link, target] if first else [target, link]]
    with pytest.raises(InputError, match="states other rights than the file"):
        merged(tmp_path, *layers)
    same = file(b"a", b"1", **{"mode": 0o755, **rights})
    (tmp_path / "same").mkdir()
    assert sizes(merged(tmp_path / "same", [same, link]))[1] == [[b"a", b"b"]]
    (tmp_path / "owner").mkdir()
    with pytest.raises(InputError, match="states other rights than the file"):
        merged(tmp_path / "owner", [same, hard(b"b", b"a", **rights, uid=1000)])
    if "mode" in rights:  # podman takes the bits away
        (tmp_path / "less").mkdir()
        with pytest.raises(InputError, match="states other rights than the file"):
            merged(tmp_path / "less", [same, hard(b"b", b"a", 0o755)])


def test_a_hard_link_is_replaced_by_another_spelling_of_its_path(tmp_path):
    base = [folder(b"usr"), symlink(b"lib", b"usr")]
    tree = merged(tmp_path, base, [file(b"a", b"1"), hard(b"lib/x", b"a"), file(b"usr/x", b"22"), hard(b"y", b"lib/x")])
    assert sizes(tree)[0] == {b"a": 1, b"y": 2}


def test_a_folder_that_was_replaced_meanwhile_is_empty(tmp_path):
    tree = merged(tmp_path, [folder(b"d"), file(b"d/x"), file(b"d"), folder(b"d")])
    assert paths(tree) == [b"d/"]


def cpu(chosen):
    """Seconds of CPU that merging takes: the least of five, what else this machine does disturbs that least."""
    found = []
    for _ in range(5):
        began = time.process_time()
        merge_packs(chosen)
        found.append(time.process_time() - began)
    return min(found)


FEW, MANY = 1000, 8000  # where time grows with the number it takes 8 times as long, with its square 64 times


@pytest.mark.slow_unit
def test_a_long_chain_of_hard_links_takes_no_time(tmp_path):
    chained = {}
    for count in (FEW, MANY):
        layer = [hard(b"%05d" % number, b"%05d" % (number + 1)) for number in range(count)]
        (tmp_path / str(count)).mkdir()
        chained[count] = packs(tmp_path / str(count), [*layer, file(b"%05d" % count, b"1")])
    tree = merge_packs(chained[MANY])
    assert len(set(map(id, tree.root.children.values()))) == 1 and len(tree.root.children) == MANY + 1
    assert cpu(chained[MANY]) < 24 * cpu(chained[FEW])


@pytest.mark.slow_unit
def test_many_whiteouts_and_folders_take_no_time(tmp_path):
    stacks = {}
    for count in (FEW, MANY):
        base = [file(b"a%05d" % number) for number in range(count)]
        top = [*(gone(b"a%05d" % number) for number in range(count)), *(folder(b"d%05d" % n) for n in range(count))]
        (tmp_path / str(count)).mkdir()
        stacks[count] = packs(tmp_path / str(count), base, top)
    assert len(merge_packs(stacks[MANY]).root.children) == MANY
    assert cpu(stacks[MANY]) < 24 * cpu(stacks[FEW])


def test_whiteouts_are_applied_first_at_any_position(tmp_path):
    base = [file(b"d/a"), file(b"d/b"), file(b"e")]
    tree = merged(tmp_path, base, [file(b"d/new"), opaque(b"d"), file(b"e", b"new"), gone(b"e"), gone(b"nothing/here")])
    assert paths(tree) == [b"d/", b"d/new", b"e"]
    assert tree.root.children[b"e"].pack.index.columns["sizes"][tree.root.children[b"e"].row] == 3


def test_names_of_aufs_are_ignored(tmp_path):
    tree = merged(tmp_path, [folder(b".wh..wh.plnk"), file(b".wh..wh.plnk/12.3"), file(b".wh..wh.aufs"), file(b"a")])
    assert paths(tree) == [b"a"]


@pytest.mark.parametrize("name", [b".wh.", b"d/.wh..", b"d/.wh..."])
def test_whiteouts_of_nothing_are_refused(tmp_path, name):
    with pytest.raises(EnvbuildError, match="names nothing"):
        merged(tmp_path, [file(name)])


@pytest.mark.parametrize("path", [b"/abs", b"a/../b", b"..", b"a//b", b"a/", b"./a", b"n" * 256, b"a\0b"])
def test_paths_that_leave_the_layer_are_refused(tmp_path, path):
    with pytest.raises(EnvbuildError, match="invalid path"):
        packs(tmp_path, [file(path)])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", [b"/abs", b"a/../b", b"a//b"])
def test_merge_trusts_no_pack(tmp_path, path):
    pack = packs(tmp_path, [file(b"fine")])[0]
    pack.index.paths[0] = path
    with pytest.raises(EnvbuildError, match="invalid path"):
        merge_packs([pack])


@pytest.mark.parametrize(
    "layer",
    [[hard(b"a", b"b")], [hard(b"a", b"a")], [hard(b"a", b"b"), hard(b"b", b"a")], [folder(b"d"), hard(b"a", b"d")]],
)
def test_hard_links_to_nothing_are_refused(tmp_path, layer):
    with pytest.raises(EnvbuildError, match="hard link 'a'"):
        merged(tmp_path, layer)


def test_metadata_of_directories(tmp_path):
    base = [folder(b"d", 0o700), file(b"d/a"), file(b"x/implied")]
    tree = merged(tmp_path, base, [folder(b"d", 0o711)], [file(b"d/b"), (Member(b"", Kind.DIR, 0o555), b"")])
    assert tree.root.mode == 0o555
    assert tree.root.children[b"d"].mode == 0o711 and sorted(tree.root.children[b"d"].children) == [b"a", b"b"]
    assert tree.root.children[b"x"].mode == 0o755 and tree.root.children[b"x"].pack is None


def test_lookup(tmp_path):
    links = {
        b"bin": b"usr/bin",
        b"usr/bin/sh": b"dash",
        b"usr/bin/up": b"../../usr/./bin/sh",
        b"loop": b"loop",
        b"top": b"/",
    }
    tree = merged(tmp_path, [file(b"usr/bin/dash"), *(symlink(path, target) for path, target in links.items())])
    dash = tree.root.children[b"usr"].children[b"bin"].children[b"dash"]
    for path in (b"bin/sh", b"/bin/sh", b"usr/bin/dash", b"bin/up", b"bin/../bin/sh", b"top/top/bin/sh"):
        assert tree.lookup(path) is dash, path
    for path in (b"bin/bash", b"loop", b"usr/bin/dash/x", b"no/../bin/sh"):
        assert tree.lookup(path) is None, path
    assert tree.lookup(b"bin/sh", follow=False) is not dash
    assert tree.lookup(b"/") is tree.root and tree.lookup(b"") is tree.root and tree.lookup(b"top") is tree.root


def test_the_names_of_all_layers_of_an_image_have_a_limit(tmp_path, monkeypatch):
    """Each of the layers is within the limit; all of them are in memory together."""
    layers = [file(b"a"), symlink(b"b", b"c" * 97)], [file(b"d", xattrs={b"user.name": b"x" * 90})]
    paths = [pack.path for pack in packs(tmp_path, *layers)]
    monkeypatch.setattr(name_count, "MAX_NAMES", 199)
    assert len(read_packs(paths)) == 2
    monkeypatch.setattr(name_count, "MAX_NAMES", 198)
    with pytest.raises(InputError, match=r"the image has 199 bytes or more of paths.*; the limit is 198"):
        read_packs(paths)
    with pytest.raises(InputError, match="the limit is 198"):
        read_packs(paths[1:], read_packs(paths[:1]))


def test_the_entries_of_an_image_that_is_written_directly_have_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(name_count, "MAX_ENTRIES", 2)
    with DirectImage(tmp_path / "image.sqsh") as image:
        image.add([file(b"a"), file(b"b")])
        with pytest.raises(InputError, match="the image has 3 entries or more; the limit is 2"):
            image.add([file(b"c")])
    assert list(tmp_path.iterdir()) == []


def test_folders_that_no_layer_describes_are_entries(tmp_path, monkeypatch):
    found = packs(tmp_path, [file(b"a/b/c/d"), file(b"a/b/e")], [file(b"x/y")])
    monkeypatch.setattr(name_count, "MAX_ENTRIES", 6)
    tree = merging.MergedTree()
    tree.apply(found[0])
    tree.apply(found[1])
    monkeypatch.setattr(name_count, "MAX_ENTRIES", 4)
    with pytest.raises(InputError, match="too many folders: the limit of entries is 4"):
        tree.apply(packs(tmp_path, [file(b"v/w")])[0])
