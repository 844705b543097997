"""Debian's CUDA toolkit as a prefix with the layout of NVIDIA's own.

Debian spreads it over /usr: programs in /usr/bin, headers among all others, libraries in the folder of the machine.
The steps run in a unit that has the package nvidia-cuda-toolkit. Its nvcc compiles with the gcc that the package
depends on, which is not the distribution's default: Debian puts programs ``gcc`` and ``g++`` in front of nvcc's path,
and so does ``host/bin`` of the prefix."""

from __future__ import annotations

from typing import Any

from envbuild.build.blocks import hpccm
from envbuild.build.blocks.checks import written

SOURCE = "nvidia-cuda-toolkit"  # the source package; its nvcc is below /usr/lib/SOURCE
COMPANIONS = ("libcu++-dev", "libcub-dev", "libthrust-dev")  # headers that NVIDIA's toolkit contains
PROGRAMS = ("bin2c", "cu++filt", "cudafe++", "cuobjdump", "fatbinary", "nvdisasm", "nvlink", "nvprune", "ptxas")
# Not in the prefix: image processing, the parts of the profiler, and all static libraries but those that nvcc links.
LEFT_OUT = r"/lib(npp|nvjpeg|accinj|cuinj|OpenCL)|_static(_[a-z]+)?[.]a$"
# As NVIDIA's own, with the host compiler in front and one folder of headers and libraries. The headers are those of the
# system, as in Debian's /usr/include: with -I, cospi and sinpi of glibc 2.41 clash with crt/math_functions.h.
PROFILE = """TOP = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH += $(TOP)/host/bin:$(TOP)/nvvm/bin:$(_HERE_):
INCLUDES += "-isystem" "$(TOP)/include" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib64/stubs" "-L$(TOP)/lib64"
"""
LISTS = "/tmp/toolkit"  # files of the steps: packages, all their files, headers, libraries


def debian_toolkit(root: str, gcc: str) -> list[Any]:
    """Return the steps that copy the toolkit to `root`. gcc: major version of the compiler that nvcc runs."""
    own = f"/usr/lib/{SOURCE}"
    return [
        hpccm.comment("Debian's toolkit, in the layout of NVIDIA's"),
        hpccm.shell(
            commands=[
                f"mkdir -p {LISTS} {root}/bin {root}/include {root}/lib64 {root}/nvvm/bin {root}/host/bin",
                f"cp -a {own}/bin/nvcc {own}/bin/crt {root}/bin/",
                f"cp -a {own}/bin/cicc {root}/nvvm/bin/",
                f"cp -a {own}/libdevice {root}/nvvm/",
                f"cp -a {' '.join(f'/usr/bin/{name}' for name in PROGRAMS)} {root}/bin/",
                f"ln -s /usr/bin/gcc-{gcc} {root}/host/bin/gcc",
                f"ln -s /usr/bin/g++-{gcc} {root}/host/bin/g++",
                written(f"{root}/bin/nvcc.profile", PROFILE),
                f"dpkg-query -W -f '${{Package}} ${{source:Package}}\\n' > {LISTS}/installed",
                f"sed -n 's/ {SOURCE}$//p' {LISTS}/installed > {LISTS}/packages",
                f"xargs dpkg -L {' '.join(COMPANIONS)} < {LISTS}/packages > {LISTS}/listed",
                f"LC_ALL=C sort -u -o {LISTS}/files {LISTS}/listed",
                f"sed -n 's|^/usr/include/||p' {LISTS}/files > {LISTS}/headers",
                f"tar -C /usr/include --no-recursion -cf {LISTS}/headers.tar -T {LISTS}/headers",
                f"tar -C {root}/include -xf {LISTS}/headers.tar",
                f"sed -nE -e '\\%{LEFT_OUT}%d' -e '\\%^/usr/lib/[^/]*-linux-gnu/lib[^/]*[.](so|a)[^/]*$%p' "
                f"{LISTS}/files > {LISTS}/libraries",
                f"xargs cp -a -t {root}/lib64/ < {LISTS}/libraries",
                f"cp -a /usr/lib/*-linux-gnu/libcudart_static.a {root}/lib64/",
                f"ln -s lib64 {root}/lib",
                f"rm -r {LISTS}",
                f"{root}/bin/nvcc --version",
            ]
        ),
    ]
