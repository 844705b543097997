"""Wheel of the ucc process group for the installed torch.

Environment: TORCH_UCC_VERSION, the version of torch that the sources were fitted to; TORCH_UCC_CUDA=1 compiles it for
CUDA tensors too; UCC_HOME, CUDA_HOME.
"""

import os
import sys
from pathlib import Path

import torch
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

version = os.environ["TORCH_UCC_VERSION"]
installed = torch.__version__.partition("+")[0]
if installed != version:
    sys.exit(f"torch-ucc: made for torch {version}, and torch {installed} is installed: not tried")

ucc = Path(os.environ["UCC_HOME"])
cuda = os.environ.get("TORCH_UCC_CUDA") == "1"
if cuda and not torch.version.cuda:
    sys.exit("torch-ucc: CUDA was asked for, and the installed torch is a CPU build")

macros = [("USE_C10D_UCC", None)]
includes, folders, libraries = [str(ucc / "include")], [str(ucc / "lib")], ["ucc"]
if cuda:
    toolkit = Path(os.environ["CUDA_HOME"])
    macros.append(("USE_CUDA", None))
    includes.append(str(toolkit / "include"))
    folders.append(str(toolkit / "lib64"))
    libraries += ["c10_cuda", "torch_cuda", "cudart"]

setup(
    name="envbuild-torch-ucc",
    version=version,
    description="The ucc process group for the stock wheel of PyTorch",
    packages=["envbuild_torch_ucc"],
    ext_modules=[
        CppExtension(
            "envbuild_torch_ucc._C",
            ["plugin.cpp", "ProcessGroupUCC.cpp", "UCCTracing.cpp", "UCCUtils.cpp"],
            include_dirs=[str(Path.cwd()), *includes],
            library_dirs=folders,
            libraries=libraries,
            define_macros=macros,
            extra_compile_args=["-O2", "-g0"],
            # UCC is no package: nothing else tells the loader where it is when the image's ld.so.conf does not
            extra_link_args=["-s", f"-Wl,-rpath,{ucc}/lib"],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
    # called at the end of `import torch`; the group torch.distributed.backends has the name ucc already, for a torch
    # that was built with UCC
    entry_points={"torch.backends": ["envbuild_torch_ucc = envbuild_torch_ucc:register"]},
)
