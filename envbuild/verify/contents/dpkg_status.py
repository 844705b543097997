"""The packages in dpkg's status file of an image, read line by line: a small image can contain a huge one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from envbuild.core.errors import VerifyError
from envbuild.squashfs.read.tree import SquashTree

PATH = "var/lib/dpkg/status"
MOST_BYTES = 1 << 24  # an image with all of a desktop has about 5 MB
MOST = 100_000  # installed packages: more than Debian has


def debian_packages(tree: SquashTree) -> dict[str, str]:
    """Return name → version of the packages that dpkg has installed.

    Raises VerifyError for a file with more than `MOST_BYTES` bytes or `MOST` packages, and for a damaged image.
    """
    found: dict[str, set[str]] = {}
    for count, (name, version) in enumerate(_installed(_lines(tree)), 1):
        if count > MOST:
            raise VerifyError(f"{PATH} in the image lists more than {MOST:,} packages", where=str(tree.path))
        found.setdefault(name, set()).add(version)
    return {name: join_versions(versions) for name, versions in sorted(found.items())}


def join_versions(versions: Iterable[str]) -> str:
    return ", ".join(sorted(versions))


def _installed(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    name = version = ""
    installed = False
    for line in lines:
        key, _, value = line.partition(": ")
        if key == "Package":
            name = value
        elif key == "Version":
            version = value
        elif key == "Status":
            installed = value.endswith(" installed")
        elif not line:
            if name and installed:
                yield name, version
            name, version, installed = "", "", False


def _lines(tree: SquashTree) -> Iterator[str]:
    """Yield the lines of the file, and an empty one that ends the last package; that alone if there is no file."""
    left = MOST_BYTES
    try:
        file = tree.open(PATH.encode())
    except FileNotFoundError:
        yield ""
        return
    with file:
        while line := file.readline(left + 1):
            left -= len(line)
            if left < 0:
                raise VerifyError(f"{PATH} in the image has more than {MOST_BYTES} bytes", where=str(tree.path))
            yield line.decode(errors="replace").rstrip("\r\n")
    yield ""
