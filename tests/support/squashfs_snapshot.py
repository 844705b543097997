"""Layers written in Python, the content of a tree on disk, and a plain model of how layers stack. Run as a program
(`python FILE DIR`) it prints the snapshot of a folder, pickled: tests do that inside mount namespaces."""

from __future__ import annotations

import errno
import hashlib
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path

from envbuild.oci.tar.member import OPAQUE, WHITEOUT, Kind, Member
from tests.support.packs import gone as gone
from tests.support.packs import hard as hard
from tests.support.packs import opaque as opaque
from tests.support.packs import pack
from tests.support.programs import importing

EPOCH = 1_700_000_000
KINDS = {
    stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo", stat.S_IFCHR: "char", stat.S_IFBLK: "block",
}  # fmt: skip


def file(path, content=b"", mode=0o644, **kw):
    return Member(path, Kind.FILE, mode, size=len(content), mtime=kw.pop("mtime", 1000), **kw), content


def folder(path, mode=0o755, **kw):
    return Member(path, Kind.DIR, mode, mtime=kw.pop("mtime", 2000), **kw), b""


def symlink(path, target, **kw):
    return Member(path, Kind.SYMLINK, 0o777, link=target, mtime=kw.pop("mtime", 3000), **kw), b""


def special(path, kind, device=(0, 0), mode=0o600, **kw):
    return Member(path, kind, mode, device=device, mtime=kw.pop("mtime", 4000), **kw), b""


def make_packs(folder: Path, layers, **kw):
    return [pack(folder / f"{number}.pack", layer, **kw) for number, layer in enumerate(layers)]


def stack(layers, epoch=EPOCH):
    """Return the merge of OCI layers as a snapshot: path → attributes. Symlinks in the middle of a path are not
    modelled. A hard link is another name of what its target is when its turn comes, in spite of a later replacement of
    the target."""
    tree: dict[bytes, tuple[Member, bytes]] = {b"": folder(b"", mtime=epoch)}

    def remove(path, itself=True):
        if path in tree and tree[path][0].kind is Kind.DIR:
            for other in [p for p in tree if p.startswith(path + b"/" if path else b"") and p != path]:
                del tree[other]
        if itself:
            tree.pop(path, None)

    def parents(path):
        above = path.rpartition(b"/")[0]
        if above:
            parents(above)
            if above not in tree or tree[above][0].kind is not Kind.DIR:
                remove(above)
                tree[above] = folder(above, mtime=epoch)

    for layer in layers:
        content = []
        for member, data in layer:
            above, _, name = member.path.rpartition(b"/")
            if name == OPAQUE:
                remove(above, itself=False)
            elif name.startswith(WHITEOUT):
                remove((above + b"/" if above else b"") + name[len(WHITEOUT) :])
            else:
                content.append((member, data))
        waiting = []  # hard links whose target is not there when their turn comes
        for member, data in content:
            if member.kind is not Kind.HARDLINK:
                entry = (member, data)
            elif member.link in tree and tree[member.link][0].kind is not Kind.DIR:
                entry = tree[member.link]
            else:
                waiting.append(member)
                continue
            parents(member.path)
            old = tree.get(member.path)
            if not (entry[0].kind is Kind.DIR and old and old[0].kind is Kind.DIR):
                remove(member.path)
            tree[member.path] = entry
        while waiting:  # links to links, in any order
            member = next(member for member in waiting if member.link in tree)
            waiting.remove(member)
            entry = tree[member.link]
            parents(member.path)
            remove(member.path)
            tree[member.path] = entry
    names: dict[int, list[bytes]] = {}
    for path, (member, _) in tree.items():
        names.setdefault(id(member), []).append(path)
    return {
        path: {
            "kind": str(member.kind),
            "mode": member.mode,
            "owner": (member.uid, member.gid),
            "mtime": min(max(member.mtime, 0), 0xFFFFFFFF),
            "size": member.size,
            "link": member.link if member.kind is Kind.SYMLINK else b"",
            "device": member.device if member.kind in (Kind.CHAR, Kind.BLOCK) else (0, 0),
            "xattrs": dict(member.xattrs),
            "content": hashlib.sha256(data).hexdigest(),
            "names": sorted(names[id(member)]) if len(names[id(member)]) > 1 else [path],
        }
        for path, (member, data) in tree.items()
    }


def snapshot(root: Path):
    """Return the snapshot of a folder on disk."""
    base = os.fsencode(root)
    result, names = {}, {}
    paths = [base] + [top + b"/" + name for top, dirs, files in os.walk(base) for name in dirs + files]
    for full in paths:
        try:
            status = os.lstat(full)
        except FileNotFoundError:  # overlayfs lists a whiteout where nothing is below, and does not find it
            continue
        kind = KINDS[stat.S_IFMT(status.st_mode)]
        digest = hashlib.sha256()
        if kind == "file":
            with Path(os.fsdecode(full)).open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256")
        path = full[len(base) + 1 :]
        key = (status.st_dev, status.st_ino) if kind != "dir" else path
        names.setdefault(key, []).append(path)
        device = (os.major(status.st_rdev), os.minor(status.st_rdev)) if kind in ("char", "block") else (0, 0)
        result[path] = {
            "kind": kind,
            "mode": stat.S_IMODE(status.st_mode),
            "owner": (status.st_uid, status.st_gid),
            "mtime": int(status.st_mtime),
            "size": status.st_size if kind == "file" else 0,
            "link": os.readlink(full) if kind == "symlink" else b"",  # noqa: PTH115 (Path would normalise it)
            "device": device,
            "xattrs": attributes(full),
            "content": digest.hexdigest(),
            "names": names[key],
        }
    for entry in result.values():
        entry["names"] = sorted(entry["names"])
    return result


def attributes(path: bytes) -> dict[bytes, bytes]:
    """Return extended attributes; an image without any has no support for them at all."""
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        return {}
    return {os.fsencode(name): os.getxattr(path, name, follow_symlinks=False) for name in names}


def unpack(image: Path, to: Path):
    """Extract with unsquashfs, which must print no complaint; return the snapshot."""
    done = subprocess.run(["unsquashfs", "-n", "-q", "-d", to, image], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done
    return snapshot(to)


def in_mount(image: Path, mount: str, umount: str, command: list[str], at: Path) -> bytes:
    """Run a command with `image` mounted at `at`, in a mount namespace of its own."""
    at.mkdir(exist_ok=True)
    script = (
        f'mount --make-rprivate / && {mount} "$0" "$1" || exit 99; '
        f'at=$1; shift; "$@"; status=$?; {umount} "$at"; exit $status'
    )
    whole = ["unshare", "-m", "sh", "-c", script, image, at, *command]
    done = subprocess.run(whole, capture_output=True, env=importing())
    assert done.returncode == 0, done.stderr
    return done.stdout


KERNEL = ("mount -t squashfs -o loop,ro", "umount")
FUSE = ("squashfuse", "umount")


def mounted(image: Path, at: Path, how=KERNEL):
    """Return the snapshot of a mounted image."""
    return pickle.loads(in_mount(image, *how, [sys.executable, __file__, str(at)], at))


def differences(found, expected):
    """Return readable differences of two snapshots."""
    return [
        (path, found.get(path), expected.get(path))
        for path in sorted(found.keys() | expected.keys())
        if found.get(path) != expected.get(path)
    ]


def without(tree, *fields):
    return {path: {k: v for k, v in entry.items() if k not in fields} for path, entry in tree.items()}


def as_root(tree):
    """Return what an unprivileged image shows of a tree: root owns all, no xattrs."""
    return {path: {**entry, "owner": (0, 0), "xattrs": {}} for path, entry in tree.items()}


if __name__ == "__main__":
    sys.stdout.buffer.write(pickle.dumps(snapshot(Path(sys.argv[1]))))
