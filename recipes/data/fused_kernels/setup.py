"""Compiles the fused kernels that lie in this folder, each pair of sources into one extension module.

Upstream compiles them at the first use in a job, or by a setup.py with a fixed list of GPUs, or (before 2022-10-29, in
GPT-NeoX) only where a GPU is visible and otherwise not at all, without a word. Read from the environment:

    FUSED_NAME, FUSED_VERSION   of the wheel
    FUSED_KERNELS               MODULE=SOURCE.cpp,SOURCE.cu …
    NVCC_GENCODE                nvcc's options for the GPUs to compile for; with them torch adds none of its own
"""

import os
import sys
from pathlib import Path

kernels = dict(word.split("=") for word in os.environ["FUSED_KERNELS"].split())
asked = {source for sources in kernels.values() for source in sources.split(",")}
found = {path.name for path in Path().glob("*.cu")}
if missing := asked - found - {path.name for path in Path().glob("*.cpp")}:
    sys.exit(f"this commit has no {', '.join(sorted(missing))}")
if left := found - asked:
    sys.exit(f"this commit has kernels that nobody asked for: {', '.join(sorted(left))}")

from setuptools import setup  # noqa: E402
from torch.utils.cpp_extension import BuildExtension, CUDAExtension  # noqa: E402

NVCC = [
    "-O3",
    "--use_fast_math",
    "-U__CUDA_NO_HALF_OPERATORS__",
    "-U__CUDA_NO_HALF_CONVERSIONS__",
    "--expt-relaxed-constexpr",
    "--expt-extended-lambda",
    *os.environ["NVCC_GENCODE"].split(),
]

setup(
    name=os.environ["FUSED_NAME"],
    version=os.environ["FUSED_VERSION"],
    py_modules=[],
    ext_modules=[
        CUDAExtension(module, sources.split(","), extra_compile_args={"cxx": ["-O3"], "nvcc": NVCC})
        for module, sources in sorted(kernels.items())
    ],
    cmdclass={"build_ext": BuildExtension},
)
