"""What was linked elsewhere against the libraries that are here: symbols, and versions of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from envbuild.core.text import human_list
from envbuild.verify.results import AuditResult, join_items, judge, split_faults
from envbuild.verify.shared_libraries import reachable_files

NAMED_SYMBOLS = 3  # symbols of one file


def link_results(seen: Mapping[str, Any], complete: bool = True) -> Iterator[AuditResult]:
    """Files of the venv and of prefixes find every symbol in what is loaded with them; no file wants a version that its
    library lacks (on a base image, `complete` False: no file that envbuild brought).

    As with libraries, a plugin in a wheel of the index that nothing needs is named; one that another package than torch
    links with torch is none.

    What it cannot see: functions that are looked up by name at run time (dlsym), a symbol that is there but means
    something else, and what the driver's own libraries have."""
    link = seen["link"]
    torch = next((dist["version"] for dist in seen["python"] if dist["name"] == "torch"), "")
    optional = _optional(seen)
    faults = [f"{path} wants {_symbols(lost, torch)}" for path, lost in link["lost"].items() if path not in optional]
    compared = f"{link['symbols']} symbols of {link['files']} files in Python packages and prefixes"
    if link["driver"]:
        compared += f", {link['driver']} of them functions of the host's driver"
    if link["elsewhere"]:
        names = [f"{path} ({count})" for path, count in link["elsewhere"].items()]
        compared += f"; plugins that get some from what loads them: {join_items(names)}"
    if optional:
        compared += f"; optional plugins that cannot be used: {join_items(sorted(optional))}"
    if link["skipped"]:
        compared += f"; not compared for want of a library: {join_items(link['skipped'])}"
    fitting = f"made for torch {torch}" if torch else "made for the versions here"
    yield judge(
        "symbols are found",
        faults,
        compared,
        f"each was compiled against another version of a library: take the release that is {fitting}, or compile it "
        "here; what is compiled here: build it again with --rebuild",
    )
    versions = seen["versions"]
    lost = {path: f"{path} wants {', '.join(texts)}" for path, texts in versions["lost"].items()}
    kept, note = split_faults(seen, lost, complete)
    yield judge(
        "versions of symbols are there",
        kept,
        f"{versions['compared']} versions that {len(seen['elves'])} files want of their libraries{note}",
        "it was compiled on a newer distribution: take a wheel for this one, compile it here, or take a newer base",
    )


def _optional(seen: Mapping[str, Any]) -> set[str]:
    """Files with lost symbols that are plugins of optional features."""
    lost = seen["link"]["lost"]
    sites = tuple({f"{dist['site']}/" for dist in seen["python"]})
    used = reachable_files(seen) if lost else set()
    return {
        path
        for path in lost
        if path.startswith(sites) and path not in used and path not in seen["compiled"]
        if not lost[path]["torch"] or seen["elves"].get(path, {}).get("dist") == "torch"
    }


def _symbols(lost: Mapping[str, Any], torch: str) -> str:
    """The first names for a person, the first one also as nm -D writes it."""
    names: list[str] = lost["names"]
    texts = list(dict.fromkeys(demangle(name) for name in names))
    if texts[0] != names[0]:
        texts[0] += f" ({names[0]})"
    text = human_list(texts, NAMED_SYMBOLS, total=lost["count"])
    whose = f"; it is linked with {', '.join(lost['torch'])} of torch {torch}" if lost["torch"] and torch else ""
    return f"{text}, which no library that it needs has{whose}"


STANDARD = {"St": "std", "Sa": "std::allocator", "Ss": "std::string", "So": "std::ostream", "Si": "std::istream"}
START = re.compile(r"_Z(?:GV|T[VTIS])?(?P<nested>N?)[rVK]*[RO]?")
PART = re.compile(r"(?P<standard>S[tasoi])|(?P<length>[1-9][0-9]*)|B(?P<tag>[1-9][0-9]*)|(?P<maker>[CD][0-5])")


def demangle(symbol: str) -> str:
    """``c10::cuda::CUDAStream::stream`` for ``_ZNK3c104cuda10CUDAStream6streamEv``; the symbol itself where this is not
    so easy."""
    start = START.match(symbol)
    if not start:
        return symbol
    at, parts = start.end(), []
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
        elif parts:
            parts.append(("~" if match["maker"][0] == "D" else "") + parts[-1])
        if not start["nested"] and match["length"]:
            break
    whole = symbol[at : at + 1] == "E" if start["nested"] else bool(parts)
    return "::".join(parts) if whole and parts else symbol
