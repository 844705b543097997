"""Host code against the oldest CPU of the target, as far as files tell without being run.

Two things are looked at. The note in which a file itself says what it needs: few do, and then the loader refuses it.
And the machine code of what this image compiled, for AVX, AVX2, FMA, BMI2 and AVX-512 as compilers write them: a build
that took the CPU of its own machine (``-march=native``) is full of them. A file that holds more than the target has but
asks the CPU before (``cpuid``, or a function that tells) is named and passes: which of its functions it would call, no
header says.

Not seen: new instructions in old encodings (lzcnt, movbe, SSE4 on a target that lacks it), code that is made while a
job runs, packages of the index (theirs ask the CPU), and anything on arm64, whose files do not tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envbuild.verify.results import AuditResult, Status, join_items, judge

LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
MEANS = {"x86-64-v3": "AVX or BMI2", "x86-64-v4": "AVX-512"}
CHOSEN = "/glibc-hwcaps/"  # the loader takes a library from there only on a CPU that has what the folder's name says


def cpu_results(seen: Mapping[str, Any], cpu: str) -> Iterator[AuditResult]:
    """`cpu`: the target's (``x86-64-v3``, ``armv8-a``); "": it is not known, and nothing is claimed."""
    compiled: Mapping[str, Mapping[str, Any]] = seen["compiled"]
    title = f"what was compiled here runs on {cpu}"
    if cpu not in LEVELS:
        if cpu and compiled:
            yield AuditResult(title, Status.NOT_RUN, "files for arm64 do not say which CPU they need")
        return
    above = LEVELS[LEVELS.index(cpu) + 1 :]
    notes: Mapping[str, str] = seen["levels"]
    yield judge(
        f"no file asks for more than {cpu}",
        [f"{path} asks for {level}" for path, level in notes.items() if level in above and CHOSEN not in path],
        f"{len(notes)} of {len(seen['elves'])} files say what they need (GNU property note)",
        "compile it for the target's CPU (-march), or take a package that is",
    )
    looked = [level for level in above if level in MEANS]
    if not compiled or not looked:
        return
    faults, asking = [], []
    for path, found in compiled.items():
        level = next((level for level in reversed(looked) if level in found), "")
        if level and ("cpuid" in found or "asks" in found):
            asking.append(path)
        elif level:
            faults.append(f"{path} has {MEANS[level]} ({level}) at {found[level]:#x} and never asks the CPU")
    compared = f"looked for {', '.join(MEANS[level] for level in looked)} in the code of {len(compiled)} files"
    if asking:
        compared += f"; these hold some and ask the CPU first: {join_items(sorted(asking))}"
    yield judge(
        title,
        faults,
        compared,
        f"its build took the CPU of the machine that built: give it -march={cpu} in the recipe (never native)",
    )
