"""Paths of a tree never leave it: by the kernel and by walking, with links of every kind and while names change."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envbuild.core.link_walk import LINKS, LeavesRootError, LinkCycleError
from envbuild.core.rooted_tree import HANDLE, LONGEST, RootedTree
from envbuild.core.userns import file_calls
from tests.support.link_chains import LENGTHS, STYLES, canary, chain, plant, unchanged

pytestmark = pytest.mark.unit
AT_FDCWD = -100
PARTS = st.sampled_from(["a", "b", "c", "f", "..", ".", "", "l", "m", "n", "o", "x" * 300])
PATHS = st.lists(PARTS, min_size=1, max_size=8).map("/".join)
RULES = {
    False: file_calls.RESOLVE_IN_ROOT | file_calls.RESOLVE_NO_MAGICLINKS,
    True: file_calls.RESOLVE_BENEATH | file_calls.RESOLVE_NO_MAGICLINKS,
}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return canary(tmp_path / "outside")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture(params=["kernel", "walk"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run once with openat2(2), and once as where a filter of system calls refuses it."""
    if request.param == "walk":
        monkeypatch.setattr(file_calls, "openat2", no_openat2)
    elif not has_openat2():
        pytest.skip("this kernel has no openat2(2)")
    return str(request.param)


def no_openat2(folder: int, path: str, flags: int, resolve: int) -> int:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def has_openat2() -> bool:
    try:
        os.close(file_calls.openat2(AT_FDCWD, ".", HANDLE, 0))
    except OSError:
        return False
    return True


def result(open_path: Callable[[], int]) -> tuple[int, int] | int:
    """Return (device, inode) of what is opened, or the number of the error. Where any process of the machine renames
    something meanwhile, openat2(2) may end with EAGAIN for a path with ``..``."""
    try:
        fd = open_path()
    except BlockingIOError:
        return result(open_path)
    except OSError as error:
        return error.errno or 0
    try:
        return os.fstat(fd).st_dev, os.fstat(fd).st_ino
    finally:
        os.close(fd)


def walked(tree: RootedTree, path: str) -> tuple[int, int] | int:
    """Return what the walk without openat2(2) finds."""
    try:
        with tree._walk(path) as place:
            return os.fstat(place.node.fd).st_dev, os.fstat(place.node.fd).st_ino
    except OSError as error:
        return error.errno or 0


@pytest.mark.skipif(not has_openat2(), reason="this kernel has no openat2(2)")
@pytest.mark.parametrize("beneath", [False, True])
@given(
    links=st.dictionaries(st.sampled_from(["l", "a/m", "a/b/n", "o"]), PATHS.filter(bool), max_size=4),
    paths=st.lists(PATHS, min_size=1, max_size=6),
)
def test_the_walk_finds_what_the_kernel_finds(links: dict[str, str], paths: list[str], beneath: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        (root / "a/b/c").mkdir(parents=True)
        (root / "f").touch()
        (root / "a/f").touch()
        plant(root, {place: target for place, target in links.items() if len(target) < 4000})
        with RootedTree(root, beneath=beneath) as tree:
            for path in paths:
                if path.strip("/"):
                    kernel = result(lambda path=path: file_calls.openat2(tree.fd, path, HANDLE, RULES[beneath]))  # type: ignore[misc]
                    if not (beneath and path.startswith("/")):  # of which the walk takes the slashes away
                        assert walked(tree, path) == kernel, path


@pytest.mark.slow_unit
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("length", [1, 2, LINKS - 1, LINKS, LINKS + 1, 60, 200])
def test_chains(root: Path, outside: Path, length: int, style: str, way: str) -> None:
    """Up to 40 links lead to the place inside that has the name of the folder outside; more are refused."""
    plant(root, chain(length, str(outside), style))
    with unchanged(outside), RootedTree(root) as tree:
        if length > LINKS:
            for action in (tree.open, tree.open_folder, tree.open_file):
                with pytest.raises(LinkCycleError) as caught, action("z0/made/it"):
                    pass
                assert caught.value.errno == errno.ELOOP
            with pytest.raises(LinkCycleError):
                tree.find("z0")
            return
        assert tree.find("z0") is None
        with tree.open_file("z0/made/it") as file:
            assert file.is_new and stat.S_ISREG(file.status.st_mode)
        with tree.open("/z0/made") as folder:
            assert folder.is_folder
        assert (root / str(outside).lstrip("/") / "made/it").read_bytes() == b""


@given(length=LENGTHS, style=st.sampled_from(STYLES), tail=st.sampled_from(["", "/new", "/new/deep", "/..", "/../x"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_is_made_outside(outside: Path, length: int, style: str, tail: str) -> None:
    with tempfile.TemporaryDirectory() as folder, unchanged(outside):
        plant(Path(folder), chain(length, str(outside), style))
        with RootedTree(Path(folder)) as tree:
            try:
                with tree.open_folder(f"z0{tail}") as made:
                    assert made.is_folder
                assert length <= LINKS
            except LinkCycleError:
                assert length > LINKS


def test_what_is_made_is_as_requested(root: Path, way: str) -> None:
    (root / "dangling").symlink_to("/to/here")
    (root / "file").touch()
    before = os.umask(0o022)
    try:
        with RootedTree(root) as tree:
            with tree.open_folder("one/two", mode=0o777) as folder:
                assert folder.is_new and folder.status.st_mode & 0o777 == 0o755
            with tree.open_folder("one/two") as folder:
                assert not folder.is_new
            with tree.open_file("dangling") as file:
                assert file.is_new and (root / "to/here").stat().st_ino == file.status.st_ino
            with tree.open_slot("dangling") as slot:
                assert (slot.folder, slot.name) == ("/", "dangling") and slot.status
            with tree.open_slot("dangling", follow=True) as slot:
                assert (slot.folder, slot.name) == ("/to", "here")
            with tree.open_slot("../..") as slot:
                assert (slot.folder, slot.name) == ("/", ".")
            with pytest.raises(FileNotFoundError), tree.open_slot("no/file", make=None):
                pass
            with pytest.raises(NotADirectoryError), tree.open_folder("file"):
                pass
            with pytest.raises(NotADirectoryError), tree.open("file/.."):
                pass
            assert tree.find("file/x") is None and tree.find("nothing") is None
            for path in ("a\0b", "x" * (LONGEST + 1), "x" * 256):
                with pytest.raises(OSError, match=r"Invalid argument|File name too long"), tree.open(path):
                    pass
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    "path", ["proc/self/exe", "proc/self/root/etc", "proc/self/fd/0", "proc/self/ns/mnt", "proc/self/cwd"]
)
def test_links_to_open_files_and_namespaces_are_refused(path: str, way: str) -> None:
    with RootedTree(Path("/")) as tree:
        assert tree.find("proc/self/status"), "ordinary links of /proc are followed"
        with pytest.raises(LinkCycleError), tree.open(path):
            pass


@pytest.mark.parametrize("path", ["..", "a/../../x", "/..", "up/x", "root/etc", "over"])
def test_beneath_refuses_what_leaves_the_folder(root: Path, path: str, way: str) -> None:
    (root / "a").mkdir()
    plant(root, {"up": "a/../..", "root": "/", "over": "up/root"})
    with RootedTree(root, beneath=True) as tree:
        with pytest.raises(LeavesRootError), tree.open(path):
            pass
        with pytest.raises(LeavesRootError), tree.open_folder(path):
            pass
        assert tree.leads_out(path) and not tree.leads_out("a/../a/no/../such")


@pytest.fixture
def swapping(root: Path, outside: Path) -> Iterator[None]:
    """Exchange the folder ``swap`` of the tree with a link that leads outside, as fast as possible."""
    (root / "swap/sub").mkdir(parents=True)
    (root / "evil").symlink_to(outside)
    ended = threading.Event()

    def swap() -> None:
        exchange = ctypes.CDLL(None).renameat2  # RENAME_EXCHANGE: the name is never missing
        while not ended.is_set():
            assert exchange(AT_FDCWD, os.fsencode(root / "swap"), AT_FDCWD, os.fsencode(root / "evil"), 2) == 0

    thread = threading.Thread(target=swap, daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()


@pytest.mark.slow_unit
def test_folders_exchanged_with_links_do_not_matter(root: Path, outside: Path, swapping: None, way: str) -> None:
    with unchanged(outside), RootedTree(root) as tree:
        identity = outside.stat().st_ino
        for number in range(300):
            try:
                with tree.open_file(f"swap/sub/file-{number}"):
                    pass
                with tree.open("swap") as found:
                    assert found.status.st_ino != identity
            except OSError as error:
                assert error.errno in (errno.ENOENT, errno.EEXIST, errno.ELOOP, errno.ENOTDIR), error


def test_descriptors_are_closed(root: Path) -> None:
    plant(root, chain(41, "/x"))
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with RootedTree(root) as tree:
        for path in ("z0", "z2/a/b", "a/b/c"):
            for action in (tree.open, tree.open_folder, tree.open_file, tree.open_slot):
                try:
                    with action(path):
                        pass
                except OSError:
                    pass
        tree.leads_out("z0/../..")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
