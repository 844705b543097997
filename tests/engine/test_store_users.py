"""Several users and one store: no user runs a setuid program of a tree that another user built, and a group shares what
its members built."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from envbuild.build.cache.cache_folder import find_intruder
from envbuild.core.console import SilentReporter
from envbuild.core.errors import EngineError
from envbuild.core.store.build_records import PACK_VERSION
from envbuild.core.store.gc import collect
from envbuild.core.store.store import Store
from envbuild.core.userns.removal import remove_tree
from envbuild.oci.layers.lower_view import read_implied
from envbuild.spec.trust import VARIABLE
from tests.support import group_store
from tests.support.group_store import CAPABLE, SETUID, build_image
from tests.support.programs import import_path
from tests.support.unprivileged_user import users_of_a_group

pytestmark = pytest.mark.engine

PACKAGES = Path(pytest.__file__).parents[1]
ALL = {"base", "everything", "privileged", "odd", "kept"}


@dataclass(frozen=True)
class Group:
    """A group with two members, a user outside of it, and a Python that all can start."""

    name: str
    one: str
    two: str
    outside: str
    python: str

    def run(self, user: str, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command as a user."""
        home = f"/home/{user}"
        path = import_path(str(PACKAGES))
        words = ["env", f"HOME={home}", f"TMPDIR={home}", f"XDG_RUNTIME_DIR={home}", f"PYTHONPATH={path}", *command]
        return subprocess.run(
            ["runuser", "-u", user, "--", *words], capture_output=True, text=True, check=False, cwd=home, **options
        )

    def build(self, user: str, store: Path, *options: str, umask: int = 0o022) -> dict[str, Any]:
        """Build the image of `group_store` as a user."""
        words = (self.python, group_store.__file__, str(store), f"/home/{user}/image.sqsh", *options)
        done = self.run(user, *words, umask=umask)
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        assert "error" not in answer, answer
        return answer


@pytest.fixture(scope="module")
def group(scratch: Path) -> Iterator[Group]:
    with users_of_a_group("newuidmap", "runuser", "setcap") as names:
        check = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
        for python in (sys.executable, "/usr/bin/python3"):
            command = ["runuser", "-u", names[1], "--", python, "-c", check]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                break
        else:
            pytest.skip(f"no python {sys.version_info[0]}.{sys.version_info[1]} that another user can start")
        yield Group(*names, python)


@pytest.fixture(scope="module")
def root_build(scratch: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield root's store in a folder that all may enter, and its image with all units."""
    store = scratch / "store-of-root"
    yield store, build_image(store, scratch / "root.sqsh", above=True)
    remove_tree(store)


@pytest.fixture
def shared(scratch: Path, group: Group) -> Iterator[Path]:
    """Yield a store as docs/sites.md makes it: ``chgrp GROUP``, ``chmod 3775``, ``envbuild store check``."""
    path = scratch / "store-of-a-group"
    path.mkdir()
    shutil.chown(path, group=group.name)
    path.chmod(0o3775)
    Store.open(path)
    yield path
    remove_tree(path)


def programs(store: Path) -> list[Path]:
    """Return the setuid program and the one with capabilities in all trees of a store."""
    found = [path for name in (SETUID, CAPABLE) for path in store.rglob(f"layers/*/tree/{name}")]
    assert len({path.name for path in found}) == 2
    assert found[0].stat().st_mode & 0o4000 and os.listxattr(found[-1]) == ["security.capability"]
    return found


@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_no_user_enters_the_trees_that_root_built(
    mode: int, root_build: tuple[Path, dict[str, Any]], group: Group, scratch: Path
) -> None:
    """A copy of cat with mode 4755 in a layer prints /etc/shadow to every user who reaches it."""
    store, _ = root_build
    store.chmod(0o755)
    for folder in ("layers", "tmp"):
        (store / folder).chmod(mode)
    lines: list[str] = []
    Store.open(store, lines.append)
    Store.open(store, lines.append)
    assert len(lines) == (mode == 0o755)  # closed, and reported once
    for user in (group.one, group.outside, "nobody"):
        for path in programs(store):
            for words in ([str(path), "/etc/shadow"], ["ls", str(path)], ["ls", str(store / "tmp")]):
                done = run_as(user, *words)
                assert done.returncode and "ermission denied" in done.stderr and not done.stdout
    assert (store / "packs").stat().st_mode & 0o777 == 0o755  # what holds no programs remains as the umask has it


def test_a_group_reuses_what_a_member_built_and_gets_the_same_image(
    shared: Path, group: Group, root_build: tuple[Path, dict[str, Any]]
) -> None:
    """The group is a supplementary one, which processes in a user namespace must not lose."""
    want, input_file = root_build[1], shared / "blobs/sha256" / hashlib.sha256(b"input").hexdigest()
    first = group.build(group.one, shared, umask=0o077)
    assert set(first["built"]) == ALL
    second = group.build(group.two, shared)
    assert (second["built"], second["sha256"]) == ([], first["sha256"])
    assert not list(shared.glob(f"user-{uid(group.two)}/layers/*"))  # a finished unit needs no tree
    third = group.build(group.two, shared, "above")
    assert third["built"] == ["above"] and third["layers"] == want["layers"] and third["sha256"] == want["sha256"]
    theirs, mine = shared / f"user-{uid(group.one)}/layers", shared / f"user-{uid(group.two)}/layers"
    for tree in mine.glob("*/tree"):
        assert not (theirs / tree.parent.name).exists() or describe(tree) == describe(
            theirs / tree.parent.name / "tree"
        )
    assert len(list(mine.glob("*/tree"))) == len(want["layers"])
    assert group.build(group.one, shared, "above")["built"] == []
    shutil.chown(input_file, group.one)  # as if the other member had downloaded it
    assert group.build(group.two, shared, "above", "rebuild")["sha256"] == want["sha256"]


def test_root_and_users_take_units_of_each_other_from_a_cache(
    group: Group, root_build: tuple[Path, dict[str, Any]], scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units with setuid programs, capabilities, other owners, and folders that only lead to a file."""
    store, want = root_build
    theirs, mine = scratch / "cache-of-a-user", scratch / "cache-of-root"
    for path, user in ((theirs, group.one), (scratch / "store-one", group.one), (scratch / "store-two", group.two)):
        path.mkdir()
        shutil.chown(path, user)
    sent = group.build(group.one, scratch / "store-one", f"cache={theirs}")
    assert set(sent["built"]) == ALL and "5 units" in sent["lines"][-1]
    try:
        assert find_intruder(theirs) == (
            f"{theirs} belongs to {group.one} (mode 0755)",
            f"if you trust it, in your site.yaml:  trust: [{theirs}]",
        )
        monkeypatch.setenv(VARIABLE, str(theirs))
        made = build_image(scratch / "store-root", scratch / "r.sqsh", above=True, cache=str(theirs))
        assert (made["built"], made["layers"], made["sha256"]) == (("above",), want["layers"], want["sha256"])
        again = build_image(store, scratch / "again.sqsh", above=True, cache=str(mine))
        assert again["built"] == () and "6 units" in again["lines"][-1]
        first = group.build(group.two, scratch / "store-two", f"cache={mine}")
        assert (first["built"], first["sha256"]) == ([], sent["sha256"])
        taken = group.build(group.two, scratch / "store-two", "above", f"cache={mine}")
        assert (taken["built"], taken["sha256"]) == ([], want["sha256"])
        assert not list((scratch / "store-two").glob("layers/*"))  # a finished unit needs no tree
        (mine / "units").rename(mine / "other")
        (scratch / "store-three").mkdir()
        shutil.chown(scratch / "store-three", group.two)
        (mine / "units").mkdir()
        for path in (mine / "other").iterdir():
            if "above" not in unit_name(path):
                path.rename(mine / "units" / path.name)
        third = group.build(group.two, scratch / "store-three", "above", f"cache={mine}")
        assert (third["built"], third["sha256"]) == (["above"], want["sha256"])
    finally:
        for name in ("store-root", "store-one", "store-two", "store-three", theirs.name, mine.name):
            remove_tree(scratch / name)


def unit_name(manifest: Path) -> str:
    """Return the name of a unit in a cache that is a folder."""
    digest = json.loads(manifest.read_bytes())["config"]["digest"].removeprefix("sha256:")
    return str(json.loads((manifest.parents[1] / "blobs/sha256" / digest).read_bytes())["unit"])


@pytest.mark.skipif(shutil.which("buildah") is None, reason="buildah is not installed")
def test_a_group_reuses_what_a_member_built_with_buildah(shared: Path, group: Group) -> None:
    """Each member has storage of their own, which buildah keeps with mode 0700; the layers are the group's."""
    shared.chmod(0o3770)
    first = group.build(group.one, shared, "buildah", umask=0o077)
    assert {"base", "kept"} <= set(first["built"])  # the last unit's own, as the Containerfile has them
    second = group.build(group.two, shared, "buildah")
    assert (second["built"], second["sha256"]) == ([], first["sha256"])
    third = group.build(group.two, shared, "buildah", "above", umask=0o077)
    assert "above" in third["built"] and "base" in third["reused"]  # its layers are unpacked, to compare with
    fourth = group.build(group.one, shared, "buildah", "above")
    assert (fourth["built"], fourth["sha256"]) == ([], third["sha256"])
    assert {path.parent.name for path in shared.glob("user-*/buildah")} == {
        f"user-{uid(user)}" for user in (group.one, group.two)
    }
    for user, other in ((group.one, group.two), (group.two, group.one)):
        assert group.run(user, "ls", str(shared / f"user-{uid(other)}/buildah")).returncode


def test_no_member_of_a_group_runs_a_program_of_another_ones_trees(shared: Path, group: Group) -> None:
    group.build(group.one, shared)
    secret = Path(f"/home/{group.one}/secret")
    secret.write_text("secret\n")
    shutil.chown(secret, group.one, group.one)
    secret.chmod(0o600)
    for user in (group.two, group.outside):
        for path in programs(shared):
            done = group.run(user, str(path), str(secret))
            assert done.returncode == 126 and "ermission denied" in done.stderr and not done.stdout
        assert group.run(user, "ls", str(shared / f"user-{uid(group.one)}")).returncode
    assert group.run(group.outside, "ls", str(shared / "packs")).returncode == 0  # the folder has mode 3775
    assert group.run(group.one, str(programs(shared)[0]), str(secret)).stdout == "secret\n"


def test_a_store_whose_folders_members_can_replace_is_refused(shared: Path, group: Group) -> None:
    """A link in the place of a folder would make the commands of another member change what it leads to."""
    home = Path(f"/home/{group.two}")
    before = sorted((path.name, path.stat().st_mode) for path in home.iterdir())
    tries = (
        (lambda: shared.chmod(0o2775), "chmod +t", lambda: shared.chmod(0o3775)),
        (lambda: shutil.chown(shared / "packs", group.one), "chown -h root", lambda: shutil.chown(shared / "packs", 0)),
        (lambda: (shared / "control").rmdir(), "envbuild store check", lambda: Store.open(shared)),
    )
    for damage, hint, repair in tries:
        damage()
        found = group.run(group.two, "env", f"ENVBUILD_STORE={shared}", group.python, "-m", "envbuild", "store", "gc")
        assert found.returncode == 5 and hint in found.stderr, found.stderr
        repair()
    (shared / "control").rmdir()
    (shared / "control").symlink_to(home)
    found = group.run(group.two, "env", f"ENVBUILD_STORE={shared}", group.python, "-m", "envbuild", "store", "gc")
    assert found.returncode == 5 and "control is not a folder" in found.stderr, found.stderr
    with pytest.raises(EngineError, match="control is not a folder"):  # root, too
        Store.open(shared)
    assert before == sorted((path.name, path.stat().st_mode) for path in home.iterdir())
    (shared / "control").unlink()


def test_root_and_the_owner_repair_a_store(shared: Path, group: Group) -> None:
    shared.chmod(0o2775)
    shutil.chown(shared / "packs", group.one)
    Store.open(shared)
    assert shared.stat().st_mode & 0o7777 == 0o3775 and (shared / "packs").owner() == "root"
    shutil.chown(shared, group.one)
    with pytest.raises(EngineError, match=f"belongs to {group.one}"):  # root's commands obey root alone
        Store.open(shared)


def test_a_member_cannot_replace_a_folder_of_another_one(shared: Path, group: Group) -> None:
    group.build(group.one, shared)
    own = shared / f"user-{uid(group.one)}"
    for path in (own, shared / "packs"):
        moved = group.run(group.two, "mv", str(path), f"{path}.away")
        assert moved.returncode and "not permitted" in moved.stderr
    assert group.run(group.two, "ls", str(own)).returncode and own.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("folder", ["packs", "blobs/sha256", "units", "locks"])
def test_links_that_a_member_planted_change_no_file_of_another_one(folder: str, shared: Path, group: Group) -> None:
    secret = Path(f"/home/{group.two}/key")
    secret.write_text("secret\n")
    shutil.chown(secret, group.two, group.two)
    secret.chmod(0o600)
    group.build(group.one, shared)
    for path in list((shared / folder).iterdir()):
        path.with_suffix(".planted").symlink_to(secret)  # an own file of a layer, as far as its name goes
        if path.suffix != ".json" or folder == "units":
            path.unlink()
            path.symlink_to(secret)
    build = (group.python, group_store.__file__, str(shared), f"/home/{group.two}/x")
    group.run(group.two, *build)  # it may end with an error
    assert secret.read_text() == "secret\n" and secret.stat().st_mode & 0o777 == 0o600
    assert secret.group() == group.two and secret.owner() == group.two


def test_root_and_members_use_a_store_beside_each_other(shared: Path, group: Group, scratch: Path) -> None:
    first = build_image(shared, scratch / "shared.sqsh")
    assert set(first["built"]) == ALL
    second = group.build(group.one, shared)
    assert (second["built"], second["sha256"]) == ([], first["sha256"])
    assert group.build(group.one, shared, "above")["built"] == ["above"]
    assert build_image(shared, scratch / "shared.sqsh", above=True)["built"] == ()
    removed, _ = collect(Store(shared), SilentReporter(), dry_run=False, everything=True)
    assert any(name.startswith("user-0/layers/") for name in removed)
    assert not list(shared.glob("user-0/layers/*")) and list(shared.glob(f"user-{uid(group.one)}/layers/*"))


def test_a_damaged_pack_of_another_user_is_removed(shared: Path, group: Group) -> None:
    group.build(group.one, shared)
    pack = next(path for path in (shared / "packs").glob(f"*.v{PACK_VERSION}") if path.stat().st_size > 1_000_000)
    content = bytearray(pack.read_bytes())
    content[len(content) // 2] ^= 1
    pack.write_bytes(content)
    done = group.run(group.two, group.python, group_store.__file__, str(shared), f"/home/{group.two}/x", "above")
    assert "error" in json.loads(done.stdout) and not pack.exists()
    assert "base" in group.build(group.two, shared, "above")["built"]


def test_a_member_repairs_what_another_one_built(shared: Path, group: Group) -> None:
    """``store check --repair`` removes the pack and the input of another user; the next build makes what it needs."""
    want = group.build(group.one, shared, "above", umask=0o077)
    packs = [path for path in (shared / "packs").glob(f"*.v{PACK_VERSION}") if path.stat().st_size > 1_000_000]
    broken = [*packs, shared / "blobs/sha256" / hashlib.sha256(b"input").hexdigest()]
    for path in broken:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    check = ("env", f"ENVBUILD_STORE={shared}", group.python, "-m", "envbuild", "store", "check")
    found = group.run(group.two, *check)
    assert found.returncode == 1 and all(path.name in found.stdout for path in broken), found.stderr
    assert group.run(group.two, *check, "--repair", umask=0o077).returncode == 0
    assert not any(path.exists() for path in broken)
    assert group.run(group.two, *check).returncode == 0
    again = group.build(group.two, shared, "above", umask=0o077)
    assert "base" in again["built"] and again["sha256"] == want["sha256"]
    assert group.build(group.one, shared, "above")["sha256"] == want["sha256"]
    assert group.run(group.one, *check).returncode == 0


def test_a_member_removes_what_is_his_own(shared: Path, group: Group) -> None:
    group.build(group.one, shared)
    group.build(group.two, shared, "above")
    command = (group.python, "-m", "envbuild", "store", "gc", "--all")
    done = group.run(group.two, "env", f"ENVBUILD_STORE={shared}", *command)
    assert done.returncode == 0, done.stderr
    left = [path.parts[-3] for path in shared.glob("user-*/layers/*")]
    assert set(left) == {f"user-{uid(group.one)}"}


def run_as(user: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user; the shell looks the program up with that user's rights."""
    words = ["sh", "-c", 'exec "$@"', "sh", *command]
    return subprocess.run(
        words, capture_output=True, text=True, check=False, user=user, group="nogroup", extra_groups=[], cwd="/"
    )


def uid(user: str) -> str:
    return subprocess.run(["id", "-u", user], capture_output=True, text=True, check=True).stdout.strip()


def describe(tree: Path) -> list[tuple[object, ...]]:
    """Return all entries of a tree, with owners as numbers of their user namespace; of folders that are not members of
    the layer the marks alone: their attributes do not count."""
    implied = {os.fsdecode(path) for path in read_implied(os.fsencode(tree))}
    first = min(path.lstat().st_uid for path in [tree, *tree.rglob("*")])
    found: list[tuple[object, ...]] = []
    for path in [tree, *sorted(tree.rglob("*"))]:
        status = path.lstat()
        attributes = {
            name: os.getxattr(path, name, follow_symlinks=False) for name in os.listxattr(path, follow_symlinks=False)
        }
        attributes.pop("security.capability", None)  # it names the namespace
        if str(path.relative_to(tree)) in implied:
            marks = sorted(item for item in attributes.items() if item[0].startswith("user.overlay."))
            found.append((str(path.relative_to(tree)), "not a member", marks))
            continue
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found.append(
            (
                str(path.relative_to(tree)),
                oct(status.st_mode),
                status.st_uid > first,
                status.st_gid > first,
                status.st_rdev,
                int(status.st_mtime),
                content,
                sorted(attributes.items()),
            )
        )
    return found
