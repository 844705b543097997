"""Stub libraries for those that only a GPU's driver provides, made from the toolkit's own headers.

The wheels of CUDA hold headers and libraries but no ``lib64/stubs``, so nothing that uses the driver directly (UCX,
UCC, NCCL's tests) links with them. The stubs have every function that ``cuda.h`` and ``nvml.h`` declare and answer
with the codes that those headers have for this case: CUDA_ERROR_STUB_LIBRARY (34), NVML_ERROR_LIBRARY_NOT_FOUND (12).

They are for linking, and for inspecting CUDA modules on a machine without a GPU: the folder ``stubs/driver`` holds them
under the driver's own names. Neither folder may get onto the loader's path of an image: ldconfig goes by SONAME, and a
stub found there would hide the host's driver."""

from __future__ import annotations

import shlex
from typing import Any

from envbuild.build.blocks import hpccm

DRIVER = "driver"  # below the folder of the stubs: the same files as libcuda.so.1 and libnvidia-ml.so.1

# Runs in the build unit, whose python3 may be as old as 3.8, and needs gcc there; standard library only. Names come
# from the declarations and from the macros that give the current version of a function its plain name (cuMemAlloc →
# cuMemAlloc_v2), also through the macros of the per-thread default stream, which only add an ending. Of the functions
# that give a text (cuGetErrorString, nvmlErrorString) callers print the text for every code.
PROGRAM = r"""
import os, re, subprocess, sys

MESSAGE = "stand-in for the driver's library: this machine has none"

def names(headers, mark, word):
    text = "\n".join(open(path, encoding="utf-8", errors="replace").read() for path in headers)
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S).replace("\\\n", " ")
    declared = set(re.findall(r"\b%s\b[\s*]*(?:char\s*\*\s*)?(%s[A-Z]\w*)\s*\(" % (mark, word), text))
    macro = r"^[ \t]*#[ \t]*define[ \t]+(%s[A-Z]\w*)[ \t]+(?:__CUDA_API_(PT[DS]S?Z?)\()?(%s[A-Z]\w*)\)?[ \t]*$"
    found = set(declared)
    for plain, ending, target in re.findall(macro % (word, word), text, flags=re.M):
        if plain in declared:
            found |= {target, target + "_" + ending.lower()} if ending else {target}
    return sorted(found)

def source(functions, code):
    lines = ['static const char text[] = "%s";' % MESSAGE]
    for name in functions:
        if name in ("cuGetErrorString", "cuGetErrorName"):
            lines.append("int %s(int code, const char **out) { (void)code; *out = text; return %d; }" % (name, code))
        elif name == "nvmlErrorString":
            lines.append("const char *%s(int code) { (void)code; return text; }" % name)
        else:
            lines.append("int %s(void) { return %d; }" % (name, code))
    return "\n".join(lines) + "\n"

def main(include, folder):
    os.makedirs(os.path.join(folder, "driver"), exist_ok=True)
    for headers, mark, word, library, code in (
        (("cuda.h", "cudaProfiler.h"), "CUDAAPI", "cu", "libcuda.so", 34),
        (("nvml.h",), "DECLDIR", "nvml", "libnvidia-ml.so", 12),
    ):
        paths = [os.path.join(include, header) for header in headers]
        functions = names(paths[:1] + [path for path in paths[1:] if os.path.exists(path)], mark, word)
        if len(functions) < 100:
            sys.exit("%s declares %d functions: is it the whole header?" % (headers[0], len(functions)))
        soname = library + ".1"
        command = ["gcc", "-shared", "-fPIC", "-O1", "-g0", "-nostdlib", "-fno-builtin", "-Wl,--build-id=none", "-s"]
        command += ["-Wl,-soname," + soname, "-x", "c", "-", "-o", os.path.join(folder, library)]
        subprocess.run(command, input=source(functions, code).encode(), check=True)
        link = os.path.join(folder, "driver", soname)
        if not os.path.lexists(link):
            os.symlink("../" + library, link)
        print("%s: %d functions" % (library, len(functions)))

main(*sys.argv[1:3])
""".lstrip()


def stubs(include: str, folder: str) -> list[Any]:
    """Return a step that makes ``libcuda.so`` and ``libnvidia-ml.so`` in `folder` from the headers in `include`, and
    links to them in its folder ``driver``. The unit needs python3 and gcc (no C library headers)."""
    words = f"{shlex.quote(include)} {shlex.quote(folder)}"
    return [
        hpccm.comment("stand-ins for the driver's libraries, to link with"),
        hpccm.shell(commands=[f"python3 - {words} <<'END'\n{PROGRAM}END"]),
    ]
