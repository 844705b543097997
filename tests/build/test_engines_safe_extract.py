"""Archives of sources are unpacked alike by a Python that tames them and by an older one, and nothing leaves the
folder."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.build.engines.safe_extract import extract_tar

pytestmark = pytest.mark.unit
DIR, FILE, HARD, LINK, FIFO = tarfile.DIRTYPE, tarfile.REGTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE
Entry = tuple[str, bytes, int, str]


@pytest.fixture(params=["own", "python"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Python's own filter, and a Python without one."""
    if request.param == "own":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    elif not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python has no tarfile.data_filter")
    return str(request.param)


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def archive(*entries: Entry) -> tarfile.TarFile:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, kind, mode, link in entries:
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.linkname, info.mtime, info.uid, info.gid = kind, mode, link, 1000, 1234, 1234
            content = name.encode() if kind == FILE else b""
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    buffer.seek(0)
    return tarfile.open(fileobj=buffer)


def test_modes_owners_and_links(tmp_path: Path) -> None:
    modes = (0o000, 0o444, 0o644, 0o666, 0o755, 0o777, 0o4755, 0o2711, 0o011, 0o100)
    entries = [
        ("top", DIR, 0o700, ""),
        ("top/open", DIR, 0o1777, ""),
        ("implied/file", FILE, 0o644, ""),
        *((f"top/{mode:o}", FILE, mode, "") for mode in modes),
        ("top/hard", HARD, 0o755, "top/755"),
        ("top/open/link", LINK, 0o777, "../644"),
        ("/rooted", FILE, 0o644, ""),
    ]
    extract_tar(archive(*entries), tmp_path / "out")
    found = {}
    for path in sorted((tmp_path / "out").rglob("*")):
        status = path.lstat()
        assert (status.st_uid, status.st_gid) == (os.getuid(), os.getgid())
        content = hashlib.sha256(path.read_bytes()).hexdigest()[:4] if path.is_file() else ""
        mode = oct(status.st_mode & 0o7777) if not path.is_symlink() else str(path.readlink())
        found[str(path.relative_to(tmp_path / "out"))] = (mode, content)
    assert {name: mode for name, (mode, _) in found.items()} == {
        "implied": "0o755",
        "implied/file": "0o644",
        "rooted": "0o644",
        "top": "0o755",
        "top/0": "0o600",
        "top/100": "0o700",
        "top/11": "0o600",
        "top/2711": "0o711",
        "top/444": "0o644",
        "top/4755": "0o755",
        "top/644": "0o644",
        "top/666": "0o644",
        "top/755": "0o755",
        "top/777": "0o755",
        "top/hard": "0o755",
        "top/open": "0o755",
        "top/open/link": "../644",
    }
    assert found["top/hard"] == found["top/755"]


@pytest.mark.parametrize(
    "entries",
    [
        [("../out-of-it", FILE, 0o644, "")],
        [("a/../../out-of-it", FILE, 0o644, "")],
        [("link", LINK, 0o777, "/etc")],
        [("link", LINK, 0o777, "..")],
        [("a", DIR, 0o755, ""), ("a/link", LINK, 0o777, "../..")],
        [("a", LINK, 0o777, "b"), ("b", LINK, 0o777, "../out-of-it")],
        [("hard", HARD, 0o644, "../out-of-it")],
        [("hard", HARD, 0o644, "/etc/passwd")],
        [("pipe", FIFO, 0o644, "")],
    ],
)
def test_nothing_leaves_the_folder(entries: list[Entry], tmp_path: Path) -> None:
    with pytest.raises(tarfile.TarError):
        extract_tar(archive(*entries), tmp_path / "out")
    assert not (tmp_path / "out-of-it").exists()
