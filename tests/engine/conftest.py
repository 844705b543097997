"""Fixtures of the engine tests."""

from __future__ import annotations

from tests.support.engine_fixtures import as_other, other_user, scratch, store

__all__ = ["as_other", "other_user", "scratch", "store"]
