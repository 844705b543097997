"""Symbols and symbol versions: files that were linked elsewhere against the libraries of the image."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from envbuild.core.text import human_list
from envbuild.verify.declared_contents import Expectations
from envbuild.verify.folder_set import FolderSet
from envbuild.verify.results import AuditResult, join_items, judge, split_faults
from envbuild.verify.shared_libraries import reachable_files

NAMED_SYMBOLS = 3  # symbols of one file
LONGEST = 4096  # characters of a symbol that is written in readable form


def link_results(report: Mapping[str, Any], expected: Expectations) -> Iterator[AuditResult]:
    """Yield whether files of the venv and of prefixes find every symbol in the libraries loaded with them, and no file
    requires a version that its library lacks (on a base image, `complete` False: no file that envbuild installed).

    As with libraries, a plugin in a wheel of the index that nothing needs is named; one that another package than torch
    links with torch is not such a plugin.

    It does not find: functions that are resolved by name at run time (dlsym), a symbol that exists but means something
    else, and the content of the driver's own libraries.
    """
    link = report["link"]
    torch = next((dist["version"] for dist in report["python"] if dist["name"] == "torch"), "")
    optional = _optional(report)
    faults = [
        f"{path} requires {_symbols(symbols, torch)}"
        for path, symbols in link["not_found"].items()
        if path not in optional
    ]
    compared = f"{link['symbols']} symbols of {link['files']} files in Python packages and prefixes"
    if link["driver"]:
        compared += f", {link['driver']} of them functions of the host's driver"
    if link["elsewhere"]:
        names = [f"{path} ({count})" for path, count in link["elsewhere"].items()]
        compared += f"; plugins that get some from the program that loads them: {join_items(names)}"
    if optional:
        compared += f"; optional plugins that cannot be used: {join_items(sorted(optional))}"
    if link["skipped"]:
        compared += f"; not compared because a library is missing: {join_items(link['skipped'])}"
    fitting = f"made for torch {torch}" if torch else "made for the versions here"
    yield judge(
        "symbols are found",
        faults,
        compared,
        f"each was compiled against another version of a library: take the release that is {fitting}, or compile it "
        "here; what is compiled here: build it again with --rebuild",
    )
    versions = report["versions"]
    missing = {path: f"{path} requires {', '.join(texts)}" for path, texts in versions["not_found"].items()}
    counted, note = split_faults(report, missing, expected.complete)
    yield judge(
        "versions of symbols are there",
        counted,
        f"{versions['compared']} versions that {len(report['elves'])} files require of their libraries{note}",
        "it was compiled on a newer distribution: take a wheel for this one, compile it here, or take a newer base",
    )


def _optional(report: Mapping[str, Any]) -> set[str]:
    """Return the files with unresolved symbols that are plugins of optional features."""
    missing = report["link"]["not_found"]
    sites = FolderSet({dist["site"] for dist in report["python"]})
    used = reachable_files(report) if missing else set()
    return {
        path
        for path in missing
        if sites.find(path) and path not in used and path not in report["compiled"]
        if not missing[path]["torch"] or report["elves"].get(path, {}).get("dist") == "torch"
    }


def _symbols(missing: Mapping[str, Any], torch: str) -> str:
    """Return the first names in readable form, the first one also as nm -D writes it."""
    names: list[str] = missing["names"]
    texts = list(dict.fromkeys(demangle(name) for name in names))
    if texts[0] != names[0]:
        texts[0] += f" ({names[0]})"
    text = human_list(texts, NAMED_SYMBOLS, total=missing["count"])
    whose = f"; it is linked with {', '.join(missing['torch'])} of torch {torch}" if missing["torch"] and torch else ""
    return f"{text}, which no library that it needs has{whose}"


STANDARD = {"St": "std", "Sa": "std::allocator", "Ss": "std::string", "So": "std::ostream", "Si": "std::istream"}
START = re.compile(r"_Z(?:GV|T[VTIS])?(?P<nested>N?)[rVK]*[RO]?")
PART = re.compile(r"(?P<standard>S[tasoi])|(?P<length>[1-9][0-9]*)|B(?P<tag>[1-9][0-9]*)|(?P<maker>[CD][0-5])")


def demangle(symbol: str) -> str:
    """Return ``c10::cuda::CUDAStream::stream`` for ``_ZNK3c104cuda10CUDAStream6streamEv``; the symbol itself where this
    is not so easy."""
    start = START.match(symbol)
    if not start or len(symbol) > LONGEST:
        return symbol
    at, parts, made = start.end(), [], False
    while match := PART.match(symbol, at):
        at = match.end()
        if match["standard"]:
            parts.append(STANDARD[match["standard"]])
        elif match["length"]:
            end = at + int(match["length"])
            if end > len(symbol):
                return symbol
            parts.append(symbol[at:end])
            at = end
        elif match["tag"]:
            at += int(match["tag"])
        elif made:
            return symbol  # of a constructor again: each would repeat the name
        elif parts:
            made = True
            parts.append(("~" if match["maker"][0] == "D" else "") + parts[-1])
        if not start["nested"] and match["length"]:
            break
    ended = symbol[at : at + 1] == "E" if start["nested"] else bool(parts)
    return "::".join(parts) if ended and parts else symbol
