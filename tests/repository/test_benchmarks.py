"""The benchmarks start: what they import exists."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = [path.stem for path in sorted((ROOT / "benchmarks").glob("*.py"))]


@pytest.mark.docs
@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_can_be_imported(name: str) -> None:
    subprocess.run([sys.executable, "-c", f"import {name}"], cwd=ROOT / "benchmarks", check=True)


@pytest.mark.docs
def test_the_benchmark_of_images_prints_all_of_them() -> None:
    command = [sys.executable, "benchmarks/images.py", "1"]
    line = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert line.startswith(f"{len(list((ROOT / 'images').glob('*.yaml')))} images printed: ")
