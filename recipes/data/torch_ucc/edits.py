"""Take PyTorch's three files of the ucc process group out of its source and fit them to the headers of a wheel.

    edits.py TARBALL FOLDER [UNCHANGED]

The wheel ships the declaration of the class (ProcessGroupUCC.hpp) but is built without the definitions. Sources of the
wheel's own version need only the edits of the first table, those of Debian's 2.6.0 both. Every edit must match exactly
once: a source that is not the one these edits were made for must fail here, not compile into something else.
"""

import re
import sys
import tarfile
from pathlib import Path

FOLDER = "torch/csrc/distributed/c10d"
GROUP, UTILS, TRACING = "ProcessGroupUCC.cpp", "UCCUtils.cpp", "UCCTracing.cpp"

# (file, pattern, text) for every version: what no wheel ships, or no plugin may use.
ALWAYS = (
    # The header of the driver's functions is not in the wheel; compat.h has what is used of it.
    (GROUP, r"#include <ATen/cuda/nvrtc_stub/ATenNVRTC\.h>", '#include "compat.h"'),
    # Its one use makes the device's context current on the progress thread.
    (
        GROUP,
        r"CUcontext pctx = nullptr;.*?cuCtxSetCurrent\(pctx\);\s*\}",
        "envbuild::make_context_current(cuda_device_index);",
    ),
)

# From 2.6 to 2.15: the headers went into the folder ucc, three methods have new names, one is gone.
HEADERS = tuple(
    (file, rf"<{FOLDER}/{header}\.hpp>", f"<{FOLDER}/ucc/{header}.hpp>")
    for file in (GROUP, UTILS, TRACING)
    for header in ("UCCTracing", "UCCUtils")
)
FROM_2_6 = (
    *HEADERS,
    (GROUP, r"ProcessGroupUCC::_allgather_base\(", "ProcessGroupUCC::all_gather_single("),
    (GROUP, r"ProcessGroupUCC::_reduce_scatter_base\(", "ProcessGroupUCC::reduce_scatter_single("),
    (GROUP, r"ProcessGroupUCC::alltoall_base\(", "ProcessGroupUCC::all_to_all_single("),
    (GROUP, r"void ProcessGroupUCC::setSequenceNumberForGroup\(\) \{\}", ""),
)


def edited(file: str, text: str, edits: tuple[tuple[str, str, str], ...]) -> str:
    """`text` with the edits of `file`. Exits with the file and the pattern when one does not match exactly once."""
    for name, pattern, replacement in edits:
        if name != file:
            continue
        found = re.findall(pattern, text, re.DOTALL)
        if len(found) != 1:
            sys.exit(f"{file}: expected exactly one match of {pattern!r}, found {len(found)}: not the source asked for")
        text = re.sub(pattern, lambda _, new=replacement: new, text, flags=re.DOTALL)
    return text


def main(tarball: str, folder: str, source: str) -> None:
    """Write the three files, edited for `source` (debian or tag), into `folder`."""
    edits = ALWAYS + (FROM_2_6 if source == "debian" else ())
    missing = {GROUP, UTILS, TRACING}
    with tarfile.open(tarball) as archive:
        for member in archive:
            top, _, path = member.name.partition("/")
            file = Path(path).name
            # below the folder ucc in later versions
            if file in missing and top and Path(path).parent.as_posix() in (FOLDER, f"{FOLDER}/ucc"):
                content = archive.extractfile(member)
                if content is None:
                    sys.exit(f"{member.name}: not a regular file")
                Path(folder, file).write_text(edited(file, content.read().decode(), edits))
                missing.remove(file)
                if not missing:
                    return
    sys.exit(f"{tarball}: holds no {' and no '.join(sorted(missing))} in {FOLDER}")


if __name__ == "__main__":
    main(*sys.argv[1:4])
