"""Chains of symbolic links that lead to a folder of this machine, and what may not change there."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import strategies as st

STYLES = ("relative", "absolute", "dots", "across")
LENGTHS = st.integers(1, 200) | st.sampled_from([1, 39, 40, 41, 60])
TOO_MANY = "links go in a circle"


def chain(length: int, target: str, style: str = "relative", name: str = "z") -> dict[str, str]:
    """Return `length` links, name → target: z0 leads to z1, … the last one to `target`.

    relative, absolute: as the links are written. dots: with more ``..`` than there are folders above. across: in two
    folders by turns.
    """
    places = [f"{name}{number}" for number in range(length)]
    if style == "across":
        places = [f"{name}-{'ab'[number % 2]}/{place}" if number else place for number, place in enumerate(places)]
    links = {}
    for place, following in zip(places, [*places[1:], target], strict=True):
        up = "../" * place.count("/")
        if following is target and not target.startswith("/"):
            links[place] = f"{up}{following}"
        elif style == "absolute" or following is target:
            links[place] = "/" + following.lstrip("/")
        elif style == "dots":
            links[place] = f"../../../{following}"
        else:
            links[place] = f"{up}{following}"
    return links


def plant(root: Path, links: dict[str, str]) -> None:
    """Make the links in the folder `root`."""
    for place, target in links.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).symlink_to(target)


def listing(folder: Path) -> dict[str, tuple[object, ...]]:
    """Return everything in a folder and the folder itself: kind, mode, owner, size, times, links, inode, content."""
    found: dict[str, tuple[object, ...]] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(status.st_mode) else ""
        found[str(path)] = (
            status.st_mode, status.st_uid, status.st_gid, status.st_size, status.st_mtime_ns, status.st_ctime_ns,
            status.st_nlink, status.st_ino, content,
        )  # fmt: skip
    return found


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Check that nothing changes in a folder of this machine, which may be made with `canary`."""
    before = listing(folder)
    yield
    assert listing(folder) == before


def canary(folder: Path) -> Path:
    """Make a folder with files that nothing may change or read."""
    (folder / "sub").mkdir(parents=True)
    for name in ("secret", "hosts", "resolv.conf", "sub/deep"):
        (folder / name).write_text(f"{name} of this machine\n")
    folder.chmod(0o755)
    os.utime(folder, (1_000_000_000, 1_000_000_000))
    return folder
