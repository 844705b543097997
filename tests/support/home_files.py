"""Public homes of a test: files of homes/ that name servers of the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from envbuild.net import public_homes


@contextmanager
def homes(folder: Path, *entries: dict[str, object]) -> Iterator[None]:
    """Replace the public homes by `entries` (of ``homes:``), in a file in `folder`."""
    defaults = {"found": "vendor", "source": "a test"}
    value = {"schema": 1, "vendor": "Maker", "contains": "x", "licence": "x"}
    folder.mkdir(exist_ok=True)
    (folder / "maker.yaml").write_text(yaml.safe_dump({**value, "homes": [{**defaults, **item} for item in entries]}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(public_homes, "FOLDER", folder)
        public_homes.public_homes.cache_clear()
        try:
            yield
        finally:
            public_homes.public_homes.cache_clear()
