"""Files with mistakes, beside the exact message that each gets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.core.errors import SpecError
from envbuild.core.yaml_nodes import relative_path


def check_message(path: Path, read: Callable[[Path], object], *, update: bool) -> None:
    """Check that reading a file ends with the message that is stored beside it, and with exit code 2."""
    with pytest.raises(SpecError) as caught:
        read(path)
    text = str(caught.value).replace(relative_path(path), "{path}") + "\n"
    stored = path.with_suffix(".txt")
    if update:
        stored.write_text(text)
    assert text == stored.read_text()
    assert caught.value.exit_code == 2
