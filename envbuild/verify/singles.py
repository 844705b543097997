"""Libraries that there must be one of: which files there are, which the loader takes, and which torch gets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from posixpath import basename
from typing import Any

from envbuild.verify.results import AuditResult, home, in_product, judged

Seen = Mapping[str, Any]

SYSTEM = ("/usr/", "/lib")
SHADOWED = ("libucp", "libucc")  # Debian's MPI depends on its own, without CUDA; the SONAME is the same
TOOLKITS = ("/opt/cuda/", "/usr/local/cuda")
TORCH = re.compile(r"lib(torch|c10)[^/]*\.so[^/]*")
RENAMED = re.compile(r"-[0-9a-f]{8}(?=\.so)")  # auditwheel's name for a library that it put into a wheel


def single_results(seen: Seen, allowed: Mapping[str, int], complete: bool = True) -> Iterator[AuditResult]:
    """No more than the allowed number of files of each library. Says which one the loader's path gives, which ones are
    really used, and which one torch gets.

    Not counted are: in a folder of /opt (and, `complete` False, anywhere on a base image) a file that neither the
    loader's path gives nor anything elsewhere uses, as bundles have them in several variants; and the CUDA runtime of a
    toolkit beside the same one in a wheel, because a process has the one that came first.

    Of a library in SHADOWED the image's own in /opt may stand beside the distribution's, which some package depends on:
    then the loader must take the own one for every SONAME, nothing may get the other, and it is named.
    """
    users: dict[str, list[str]] = {}
    for path, elf in seen["elves"].items():
        for target in {*elf.get("needed", {}).values(), *elf.get("preload", {}).values()}:
            users.setdefault(target, []).append(path)
    for library, most in sorted(allowed.items()):
        there = seen["singles"].get(library)
        if there is None:
            continue  # not counted in the image, so nothing is claimed
        files: list[str] = there["files"]
        taken = sorted({path for path in there["first"].values() if path})
        counted = [
            path
            for path in files
            if path in taken or _apart(path, users) or (complete and not in_product(path))
            if not _same_runtime(path, files, seen)
        ]
        used = ", ".join(f"{path} by {count}" for path, count in sorted(there["used"].items())) or "none"
        compared = f"files: {len(files)}; on the loader's path: {', '.join(taken) or 'none'}; used: {used}"
        torch = sorted(path for path in files if any(TORCH.fullmatch(basename(user)) for user in users.get(path, ())))
        if torch:
            compared += f"; torch gets {', '.join(torch)}"
        faults = [] if len(counted) <= most else [f"{len(counted)} are there: {', '.join(counted)}"]
        hint = "two versions in one process hang or crash: leave out the package that brings the second one"
        own = [path for path in files if in_product(path)]
        others = [path for path in counted if path not in own]
        if complete and own and others and library in SHADOWED and all(path.startswith(SYSTEM) for path in others):
            faults = [f"the loader takes {path}, not {' or '.join(own)}" for path in taken if path not in own]
            faults += [f"{user} gets {path}, not {' or '.join(own)}" for path in others for user in users.get(path, ())]
            compared += "" if faults else f"; shadowed: {', '.join(others)}"
            hint = "its folder in runtime(libraries=…) comes first on the loader's path; nothing may have another RPATH"
        elif len(counted) < len(files):
            compared += f"; not counted: {', '.join(sorted(set(files) - set(counted)))}"
        yield judged(
            f"at most {most} {library}",
            faults,
            compared,
            hint,
        )


def _apart(path: str, users: Mapping[str, Sequence[str]]) -> bool:
    """Whether something outside of the library's own product uses it."""
    if in_product(path):
        return any(not user.startswith(home(path)) for user in users.get(path, ()))
    return any(map(in_product, users.get(path, ())))


def _same_runtime(path: str, files: Sequence[str], seen: Seen) -> bool:
    """Whether it is a toolkit's CUDA runtime and another file has the same SONAME."""

    def name(file: str) -> str:
        return RENAMED.sub("", seen["elves"].get(file, {}).get("soname", "") or basename(file))

    others = [file for file in files if not file.startswith(TOOLKITS)]
    return basename(path).startswith("libcudart") and path not in others and name(path) in map(name, others)
