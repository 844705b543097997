"""Small wheels with the metadata of torch's wheels."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.support.wheel_server import make_wheel

AMD, ARM = "manylinux_2_28_x86_64", "manylinux_2_28_aarch64"
SM_2_8 = "sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"


def wheel(
    folder: Path,
    version: str,
    python: str,
    platform: str,
    *,
    cuda: str = "",
    sm: str = "",
    requires: Iterable[str] = (),
    requires_python: str = "",
) -> Path:
    """Write a wheel of torch with the files that the collector reads."""
    tag = python.replace(".", "")
    library = b"\x7fELF ProcessGroupNCCL" + (f"..\0{sm}\0\0more".encode() if sm else b"")
    text = f"__version__ = '{version}+cu'\ndebug = False\ncuda: Optional[str] = {cuda!r}\nhip = None\n"
    members = {
        "torch/version.py": text.replace("''", "None").encode(),
        "torch/lib/libtorch_python.so": library,
    }
    name = f"torch-{version}-cp{tag.removesuffix('t')}-cp{tag}-{platform}.whl"
    return make_wheel(folder, name, requires=tuple(requires), requires_python=requires_python, members=members)
