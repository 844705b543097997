"""Options of the Python interpreter for envbuild's own processes."""

from __future__ import annotations

# Texts are UTF-8 in any locale (PEP 540); also where Python's own environment is ignored (-I).
MODE = ("-X", "utf8")
