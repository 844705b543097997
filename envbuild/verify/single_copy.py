"""Libraries that must exist once: their files, the one that the loader uses, and the one that torch uses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from posixpath import basename
from typing import Any

from envbuild.core.text import human_list
from envbuild.verify.declared_contents import Expectations
from envbuild.verify.results import AuditResult, is_in_product, judge, product_folder

Report = Mapping[str, Any]

SYSTEM = ("/usr/", "/lib")
SHADOWED = ("libucp", "libucc")  # Debian's MPI depends on its own, without CUDA; the SONAME is the same
TOOLKITS = ("/opt/cuda/", "/usr/local/cuda")
TORCH = re.compile(r"lib(torch|c10)[^/]*\.so[^/]*")
RENAMED = re.compile(r"-[0-9a-f]{8}(?=\.so)")  # auditwheel's name for a library that it put into a wheel

NAMED = 12  # files of a list
LONGEST = 200  # characters of the image's own files in a fault
COUNT_HINT = "two versions in one process hang or crash: leave out the package that contains the second one"
SHADOW_HINT = "its folder in runtime(libraries=…) comes first on the loader's path; nothing may have another RPATH"


@dataclass(frozen=True, slots=True)
class Copies:
    """The files of one library. `taken` are on the loader's path, `counted` those that a process may get."""

    library: str
    files: Sequence[str]
    taken: Sequence[str]
    counted: Sequence[str]

    @property
    def own(self) -> list[str]:
        """The image's own files, in /opt."""
        return [path for path in self.files if is_in_product(path)]

    @property
    def others(self) -> list[str]:
        """The counted files beside those."""
        return [path for path in self.counted if not is_in_product(path)]

    def shadows(self) -> bool:
        """Return whether the image's own may exist beside the distribution's."""
        only_system = all(path.startswith(SYSTEM) for path in self.others)
        return bool(self.own and self.others) and self.library in SHADOWED and only_system


def single_results(report: Report, expected: Expectations) -> Iterator[AuditResult]:
    """Yield for each library whether there are no more than the allowed number of its files.

    The result names the one on the loader's path, those that are really used, and the one that torch uses.

    Not counted are: in a folder of /opt (and, `complete` False, anywhere on a base image) a file that is
    neither on the loader's path nor used by anything elsewhere, as bundles have them in several variants; and the CUDA
    runtime of a toolkit beside the same one in a wheel, because a process has the one that came first.

    Of a library in SHADOWED the image's own in /opt may exist beside the distribution's, which some package depends on:
    then the loader must take the own one for every SONAME, nothing may get the other, and it is named.
    """
    users, complete = users_of_libraries(report), expected.complete
    for library, most in sorted(expected.singles.items()):
        library_report = report["singles"].get(library)
        if library_report is None:
            continue  # not counted in the image, so nothing is claimed
        copies = counted_copies(report, library, users, complete)
        compared = compared_copies(copies, library_report["used"], users)
        title = f"at most {most} {library}"
        if complete and copies.shadows():
            faults = shadow_faults(copies, users)
            compared += "" if faults else f"; shadowed: {list_files(copies.others)}"
            yield judge(title, faults, compared, SHADOW_HINT)
            continue
        if len(copies.counted) < len(copies.files):
            compared += f"; not counted: {list_files(sorted(set(copies.files) - set(copies.counted)))}"
        counted = f"{len(copies.counted)} are there: {list_files(copies.counted)}"
        yield judge(title, [] if len(copies.counted) <= most else [counted], compared, COUNT_HINT)


def users_of_libraries(report: Report) -> dict[str, list[str]]:
    """Return library → files that get it from the loader or from Python code that loads it before."""
    users: dict[str, list[str]] = {}
    for path, elf in report["elves"].items():
        for target in {*elf.get("needed", {}).values(), *elf.get("preload", {}).values()}:
            users.setdefault(target, []).append(path)
    return users


def counted_copies(report: Report, library: str, users: Mapping[str, Sequence[str]], complete: bool) -> Copies:
    """Return the files of a library, and which of them count."""
    library_report = report["singles"][library]
    files: list[str] = list(dict.fromkeys(library_report["files"]))  # a hostile image may list one 10,000 times
    taken = {path for path in library_report["first"].values() if path}
    duplicates = toolkit_duplicates(files, report)
    counted = [
        path
        for path in files
        if path in taken or _is_used_elsewhere(path, users) or (complete and not is_in_product(path))
        if path not in duplicates
    ]
    return Copies(library, files, sorted(taken), counted)


def compared_copies(copies: Copies, used: Mapping[str, int], users: Mapping[str, Sequence[str]]) -> str:
    """Return what was compared: how many files, which one the loader's path has, who uses which, what torch uses."""
    uses = list_files([f"{path} by {count}" for path, count in sorted(used.items())]) or "none"
    text = f"files: {len(copies.files)}; on the loader's path: {list_files(copies.taken) or 'none'}; used: {uses}"
    torch = sorted(path for path in copies.files if any(map(_is_torch, users.get(path, ()))))
    return f"{text}; torch uses {list_files(torch)}" if torch else text


def list_files(paths: Sequence[str]) -> str:
    """Return the first of many files as text."""
    return human_list(paths, NAMED)


def shadow_faults(copies: Copies, users: Mapping[str, Sequence[str]]) -> list[str]:
    """Return where the distribution's library is taken, which the image's own should hide."""
    products = set(copies.own)
    own = list_files(copies.own)[:LONGEST]  # a part of every fault
    faults = [f"the loader takes {path}, not {own}" for path in copies.taken if path not in products]
    return faults + [f"{user} gets {path}, not {own}" for path in copies.others for user in users.get(path, ())]


def _is_torch(path: str) -> bool:
    return TORCH.fullmatch(basename(path)) is not None


def _is_used_elsewhere(path: str, users: Mapping[str, Sequence[str]]) -> bool:
    """Return whether something outside of the library's own product uses it."""
    if is_in_product(path):
        folder = product_folder(path)
        return any(not user.startswith(folder) for user in users.get(path, ()))
    return any(map(is_in_product, users.get(path, ())))


def toolkit_duplicates(files: Sequence[str], report: Report) -> set[str]:
    """Return the CUDA runtimes of a toolkit of which another file has the same SONAME."""

    def name(file: str) -> str:
        return RENAMED.sub("", report["elves"].get(file, {}).get("soname", "") or basename(file))

    others = {name(file) for file in files if not file.startswith(TOOLKITS)}
    runtimes = [file for file in files if file.startswith(TOOLKITS) and basename(file).startswith("libcudart")]
    return {file for file in runtimes if name(file) in others}
