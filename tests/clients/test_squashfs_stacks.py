"""Random small stacks of layers: what unsquashfs finds is what the rules of layers give."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from envbuild.oci.tar.member import OPAQUE, Kind
from tests.support.examples import examples
from tests.support.squashfs_image import write_image
from tests.support.squashfs_snapshot import (
    EPOCH,
    differences,
    file,
    folder,
    gone,
    hard,
    make_packs,
    opaque,
    special,
    stack,
    symlink,
    unpack,
)

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(not shutil.which("unsquashfs"), reason="unsquashfs is not installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="owners need root"),
]

NAMES = st.sampled_from([b"a", b"b", b"c", b"\xff", b"a.b"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(b"/".join)
MODES = st.sampled_from([0o644, 0o755, 0o4711, 0o000, 0o1777])
CONTENTS = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(
        [b"", bytes(4096), bytes(8192), bytes(5000), b"x" * 4096, b"xy" * 6000, b"q" * 4095, bytes(4096) + b"!"]
    ),
)
ATTRIBUTES = st.dictionaries(
    st.sampled_from([b"user.a", b"trusted.b", b"security.c"]), st.binary(max_size=4), max_size=2
)


def rights(entry):
    """Return what a tar states for another name of a file."""
    uid, gid = entry["owner"]
    return {"mode": entry["mode"], "uid": uid, "gid": gid}


@st.composite
def layers(draw):
    """Up to four layers in byte order of paths, each path once; hard links name files of their layer or below."""
    result = []
    for _ in range(draw(st.integers(1, 4))):
        layer = {}
        for path in draw(st.lists(PATHS, max_size=8, unique=True)):
            if any(
                other.startswith(path + b"/")
                or (path.startswith(other + b"/") and layer[other][0].kind is not Kind.DIR)
                for other in layer
            ):
                continue  # below a file of the same layer nothing can be
            match draw(st.sampled_from(["file", "file", "folder", "symlink", "special", "gone", "opaque", "hard"])):
                case "file":
                    entry = file(
                        path,
                        draw(CONTENTS),
                        draw(MODES),
                        uid=draw(st.sampled_from([0, 7])),
                        mtime=draw(st.integers(-5, 1 << 33)),
                        xattrs=draw(ATTRIBUTES),
                    )
                case "folder":
                    entry = folder(path, draw(MODES), gid=draw(st.sampled_from([0, 70_000])))
                case "symlink":
                    entry = symlink(path, draw(st.sampled_from([b"a", b"../x", b"/nowhere"])))
                case "special":
                    entry = special(path, draw(st.sampled_from([Kind.FIFO, Kind.CHAR])), (0, 0))
                case "gone":
                    layer[gone(path)[0].path] = gone(path)
                    continue
                case "opaque":
                    layer[opaque(path)[0].path] = opaque(path)
                    entry = folder(path)
                case "hard":
                    files = [
                        other
                        for other, (member, _) in layer.items()
                        if member.kind is Kind.FILE and b".wh." not in other
                    ]
                    if not files:
                        continue
                    target = draw(st.sampled_from(sorted(files)))
                    below = stack(result).get(target) if path < target else None  # what its target is at its turn
                    known = below if below and below["kind"] != "directory" else None
                    own, _ = layer[target]
                    entry = hard(path, target, **rights(known or {"mode": own.mode, "owner": (own.uid, own.gid)}))
            layer[path] = entry
        visible = stack(result)
        touched = {path.replace(b".wh.", b"") for path in layer} | {
            path.rpartition(b"/")[0] for path in layer if path.endswith(OPAQUE)
        }
        quiet = [  # files below that this layer does not touch
            path
            for path, entry in visible.items()
            if entry["kind"] == "file"
            and path != b"linked"
            and not any((path + b"/").startswith(other + b"/") or other.startswith(path + b"/") for other in touched)
        ]
        if quiet and b"" not in touched and draw(st.booleans()):
            target = draw(st.sampled_from(sorted(quiet)))
            layer[b"linked"] = hard(b"linked", target, **rights(visible[target]))
        result.append([layer[path] for path in sorted(layer)])
    return result


def through_symlinks(stacked):
    """Return whether a path of a layer goes through a symlink of a lower one: a separate rule, tested apart."""
    for count in range(1, len(stacked)):
        below = {path for path, entry in stack(stacked[:count]).items() if entry["kind"] == "symlink"}
        own = {member.path for member, _ in stacked[count]}
        for member, _ in stacked[count]:
            parts = member.path.split(b"/")
            if any(b"/".join(parts[:n]) in below and b"/".join(parts[:n]) not in own for n in range(1, len(parts))):
                return True
    return False


@examples(150)
@given(layers(), st.sampled_from([1, 3]))
@example([[file(b"a"), file(b"b", b"low")], [hard(b"a", b"b"), file(b"b", b"new")]], 1)  # a remains the lower b
def test_random_stacks(stacked, jobs):
    if through_symlinks(stacked):
        return
    with tempfile.TemporaryDirectory() as place:
        packs = make_packs(Path(place), stacked, block=4096, jobs=jobs)
        written = write_image(packs, Path(place) / "image", epoch=EPOCH, all_root=False)
        assert not differences(unpack(written.path, Path(place) / "out"), stack(stacked))
