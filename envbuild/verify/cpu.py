"""Host code against the oldest CPU of the target, as far as files show it without being run.

Two things are checked. The first is the note in which a file itself states the CPU that it needs: few files have it,
and then the loader refuses them. The second is the machine code that this image compiled: AVX, AVX2, FMA, BMI2 and
AVX-512 as compilers write them. A build for the CPU of its own machine (``-march=native``) is full of them. A file
that needs more than the target has but queries the CPU first (``cpuid``, or a function that queries it) is named and
passes: no header states which of its functions it would call.

Not found: new instructions in old encodings (lzcnt, movbe, SSE4 on a target that lacks it), code that is generated
while a job runs, packages of the index (theirs query the CPU), and anything on arm64, whose files do not state it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envbuild.verify.declared_contents import Expectations
from envbuild.verify.results import AuditResult, Status, join_items, judge

LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
MEANS = {"x86-64-v3": "AVX or BMI2", "x86-64-v4": "AVX-512"}
CHOSEN = "/glibc-hwcaps/"  # the loader uses a library of such a folder only on a CPU that has the features in its name


def cpu_results(report: Mapping[str, Any], expected: Expectations) -> Iterator[AuditResult]:
    """Yield whether files run on the target's CPU (``x86-64-v3``, ``armv8-a``); nothing if it is not known ("")."""
    cpu = expected.cpu
    compiled: Mapping[str, Mapping[str, Any]] = report["compiled"]
    title = f"what was compiled here runs on {cpu}"
    if cpu not in LEVELS:
        if cpu and compiled:
            yield AuditResult(title, Status.NOT_RUN, "files for arm64 do not state which CPU they need")
        return
    above = LEVELS[LEVELS.index(cpu) + 1 :]
    notes: Mapping[str, str] = report["levels"]
    yield judge(
        f"no file requires more than {cpu}",
        [f"{path} requires {level}" for path, level in notes.items() if level in above and CHOSEN not in path],
        f"{len(notes)} of {len(report['elves'])} files state what they need (GNU property note)",
        "compile it for the target's CPU (-march), or take a package that is",
    )
    searched = [level for level in above if level in MEANS]
    if not compiled or not searched:
        return
    faults, querying = [], []
    for path, found in compiled.items():
        level = next((level for level in reversed(searched) if level in found), "")
        if level and ("cpuid" in found or "asks" in found):
            querying.append(path)
        elif level:
            faults.append(f"{path} has {MEANS[level]} ({level}) at {found[level]:#x} and never queries the CPU")
    compared = f"searched {', '.join(MEANS[level] for level in searched)} in the code of {len(compiled)} files"
    if querying:
        compared += f"; these contain some and query the CPU first: {join_items(sorted(querying))}"
    yield judge(
        title,
        faults,
        compared,
        f"it was compiled for the CPU of the build machine: set -march={cpu} in the recipe (never native)",
    )
