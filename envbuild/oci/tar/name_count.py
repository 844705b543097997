"""Limits of what a layer or an image may make its readers hold in memory: its entries and their names.

A tar of ten megabytes can hold millions of entries, or gigabytes of targets of links that differ in a few bytes. An
entry takes about 450 bytes while it is packed and merged, a byte of a name about three.
"""

from __future__ import annotations

from envbuild.oci.tar.fields import LayerTooLargeError

MAX_ENTRIES = 5_000_000  # the largest images in use have about two million files
MAX_NAMES = 512 << 20  # bytes of their paths, targets of links and extended attributes: 300 MB for two million files

# Records of extended headers above those that programs write for a member: each takes 3 µs, and 200 kB of zstd can be
# 200 million.
USUAL_RECORDS, MAX_RECORDS = 10, 8_000_000


class NameCount:
    """Count of the entries of `what`, of the bytes of their names, and of the records of their extended headers."""

    def __init__(self, what: str = "it") -> None:
        self.what, self.entries, self.size, self.records = what, 0, 0, 0

    def add_records(self, count: int) -> None:
        """Count the records of one extended header. Raises LayerTooLargeError."""
        self.records += max(count - USUAL_RECORDS, 0)
        if self.records > MAX_RECORDS:
            raise LayerTooLargeError(f"{self.what} has more than {MAX_RECORDS} unusual records in extended headers")

    def add(self, entries: int, size: int) -> None:
        """Count entries whose paths, targets and extended attributes have `size` bytes. Raises LayerTooLargeError."""
        self.entries += entries
        self.size += size
        if self.entries > MAX_ENTRIES:
            raise LayerTooLargeError(f"{self.what} has {self.entries} entries or more; the limit is {MAX_ENTRIES}")
        if self.size > MAX_NAMES:
            raise LayerTooLargeError(
                f"{self.what} has {self.size} bytes or more of paths, targets of links and extended attributes; the "
                f"limit is {MAX_NAMES}"
            )
