"""The content of an image in figures."""

from __future__ import annotations

import pytest

from envbuild.core.errors import VerifyError
from envbuild.squashfs.read.inode import DIRECTORY, REGULAR, SYMLINK, Inode
from envbuild.squashfs.read.tree import Entry
from envbuild.verify.contents.size_summary import LARGEST, SizeSummary, counted_folder

pytestmark = pytest.mark.unit


def entry(path: str, size: int = 0, kind: int = REGULAR, *, reference: int = 0, links: int = 1) -> Entry:
    return Entry(path.encode(), Inode(kind, 0o644, 0, 0, 0, reference, links, 0, size))


def test_the_largest_files_come_first_and_equal_ones_by_name() -> None:
    summary = SizeSummary().add_all(entry(f"f{number:02}", number % 25) for number in range(50))
    assert summary.largest[:4] == [(b"f24", 24), (b"f49", 24), (b"f23", 23), (b"f48", 23)]
    assert len(summary.largest) == LARGEST
    assert min(size for _, size in summary.largest) == 15


def test_each_inode_counts_once() -> None:
    summary = SizeSummary().add_all(
        [
            entry("opt", kind=DIRECTORY, links=2),
            entry("usr", kind=DIRECTORY, links=2),
            entry("opt/ucx/lib/a", 100, reference=7, links=2),
            entry("opt/ucx/lib/b", 100, reference=7, links=2),
            entry("opt/ucx/c", 10, reference=8, links=2),
            entry("opt/ucx/link", 3, SYMLINK),
        ]
    )
    assert (summary.unpacked, dict(summary.folders)) == (110, {b"opt/ucx": 110})
    assert dict(summary.kinds) == {"directory": 2, "file": 2, "hard link": 1, "symlink": 1}


def test_python_distributions_by_their_metadata() -> None:
    site = "opt/venv/lib/python3.13/site-packages"
    names = ["Flash_Attn-2.8.3.dist-info", "numpy-2.1-py3.13.egg-info", "x-1.dist-info/METADATA", "numpy"]
    summary = SizeSummary().add_all(
        [*(entry(f"{site}/{name}", kind=DIRECTORY) for name in names), entry("srv/y-1.dist-info", kind=DIRECTORY)]
    )
    assert summary.python == {"flash-attn": "2.8.3", "numpy": "2.1"}


def test_distributions_and_folders_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envbuild.verify.contents.size_summary.MOST", 2)
    many = [entry(f"a/{number}/b", 1) for number in range(4)]
    assert SizeSummary().add_all(many).folders == {b"a/0": 1, b"a/1": 1, b"": 2}
    with pytest.raises(VerifyError, match="more than 2 Python distributions"):
        SizeSummary("x.sqsh").add_all(entry(f"a/site-packages/{number}-1.dist-info") for number in range(3))


def test_a_name_that_is_not_utf_8_is_readable() -> None:
    path = b"lib/site-packages/a\xff-1.dist-info"
    summary = SizeSummary().add_all([Entry(path, entry("x", kind=DIRECTORY).inode)])
    assert summary.python == {"a\ufffd": "1"}


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("opt/ucx/lib/a", "opt/ucx"),
        ("opt/a", "opt"),
        ("a", ""),
        ("v/lib/site-packages/torch/lib/a", "v/lib/site-packages/torch"),
        ("v/lib/site-packages/nvidia/nccl/a", "v/lib/site-packages/nvidia/nccl"),
        ("v/lib/site-packages/six.py", "v/lib"),
    ],
)
def test_a_file_counts_to_its_package_or_to_two_folders(path: str, folder: str) -> None:
    assert counted_folder(path.encode()) == folder.encode()
