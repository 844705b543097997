"""Fixtures of the tests of core."""

from __future__ import annotations

from tests.support.store_members import folder, home, shared

__all__ = ["folder", "home", "shared"]
