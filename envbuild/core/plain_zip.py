"""Python's zip reader for third-party archives: members that are stored or deflated alone.

`zipfile` unpacks members of other methods whole, of any size that they state: 1.6 kB of bzip2 took 4 GB of memory.
Wheels have no others."""

from __future__ import annotations

import zipfile
from typing import Any


class PlainZipFile(zipfile.ZipFile):
    """A zip archive of members that are stored or deflated. Reading raises what `zipfile` raises."""

    def open(self, name: str | zipfile.ZipInfo, *arguments: Any, **options: Any) -> Any:
        """Return a member as a stream, with no more bytes than its size. Raises BadZipFile for other methods."""
        found = name if isinstance(name, zipfile.ZipInfo) else self.getinfo(name)
        if found.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or found.flag_bits & 1:
            raise zipfile.BadZipFile(f"{found.filename!r} is compressed or encrypted in a way that no wheel is")
        return super().open(found, *arguments, **options)
