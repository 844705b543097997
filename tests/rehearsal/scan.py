"""Calls in the build files of a source that a unit cannot serve: git, the network, detection of the machine's GPU.

The scan reads lines, so it lists more than a build executes. It names what to read in a new version."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

CALLS = {
    "git": r"""["']git["']\s*,|(^|[\s`(;&|])git\s+(submodule|rev-parse|describe|log|clone|fetch|apply|status)\b"""
    r"""|find_package\(Git""",
    "network": r"""urllib\.request|urlretrieve|requests\.get|\bcurl\s+-|\bwget\s|FetchContent_(Declare|MakeAvailable)"""
    r"""|GIT_REPOSITORY|file\(DOWNLOAD|setup_requires""",
    "GPU": r"nvidia-smi|get_device_(capability|properties)|is_available\(\)|cudaGetDevice|arch=native|cuda_select_nvcc",
}
BUILD_FILES = re.compile(
    r"(setup|builder|build_ext|pytorch|utils|version)\.py|CMakeLists\.txt|.*\.(cmake|ac|m4|mk)|autogen\S*|Makefile(\.am)?"
)
# Folders of a source that a build of the component does not enter.
SKIPPED = {
    "test", "tests", "testing", "docs", "doc", "examples", "example", "contrib", "third_party", "3rd-party", "csrc",
    "external", "benchmarks", "benchmark", ".github", ".ci", "ci", "docker", "bindings", "buildlib", "training",
    "projects", "megatron", "deepspeed", "metaseq", "apex", "flash_attn", "xformers", "packages", "demo",
}  # fmt: skip
COMMENT = re.compile(r"\s*(#|//|dnl\b|--|\*)")


def scan(folder: Path) -> dict[str, list[str]]:
    """Return kind of call → places (``setup.py:116``) in the build files of an unpacked source, two levels deep."""
    found: dict[str, list[str]] = {kind: [] for kind in CALLS}
    for path in build_files(folder):
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if COMMENT.match(line):
                continue
            for kind, pattern in CALLS.items():
                if re.search(pattern, line):
                    found[kind].append(f"{path.relative_to(folder)}:{number}")
    return {kind: places for kind, places in found.items() if places}


def build_files(folder: Path) -> list[Path]:
    found = []
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if len(parts) <= 3 and path.is_file() and BUILD_FILES.fullmatch(parts[-1]) and not SKIPPED & set(parts[:-1]):
            found.append(path)
    return found


def summary(found: dict[str, list[str]]) -> list[str]:
    """Return one text per kind: how many places, and the files with the most."""
    rows = []
    for kind, places in found.items():
        files = Counter(place.rpartition(":")[0] for place in places).most_common(3)
        rows.append(f"{kind}: {', '.join(f'{file} ({count})' for file, count in files)}")
    return rows
