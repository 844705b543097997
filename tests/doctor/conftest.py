"""Fixtures of the tests of doctor."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.node_files import Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Return a healthy node with GPUs, ports and Slurm."""
    node = Node(tmp_path)
    node.add_gpus()
    node.add_ports()
    node.add_slurm()
    return node
