"""C++ names for people, as far as that is cheap: namespaces and names, no arguments, no templates.

Source of the encoding: Itanium C++ ABI, "External Names (a.k.a. Mangling)".
"""

from __future__ import annotations

import re

STANDARD = {"St": "std", "Sa": "std::allocator", "Ss": "std::string", "So": "std::ostream", "Si": "std::istream"}
START = re.compile(r"_Z(?:GV|T[VTIS])?(?P<nested>N?)[rVK]*[RO]?")
PART = re.compile(r"(?P<standard>S[tasoi])|(?P<length>[1-9][0-9]*)|B(?P<tag>[1-9][0-9]*)|(?P<maker>[CD][0-5])")


def readable(symbol: str) -> str:
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
