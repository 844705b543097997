"""Fixtures of the engine tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from embeddedfixtures import as_other, other_user, scratch, store

__all__ = ["as_other", "other_user", "scratch", "store"]
