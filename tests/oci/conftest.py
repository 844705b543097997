"""Fixtures of tests of images and their layers."""

from __future__ import annotations

import random

import pytest

from envbuild.core.store.store import LayerRecord, Store
from tests.support.stored_layers import files, layer


@pytest.fixture
def layers(store: Store) -> tuple[LayerRecord, ...]:
    """Return two layers: one that is larger than any buffer, and a small one over it."""
    base = layer(store, "base", files(one="1\n", big=random.Random(1).randbytes(1_500_000).hex()))
    return base, layer(store, "glue", files(two="2\n"), [base])
