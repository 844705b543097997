"""How processes of envbuild's own are started in Python."""

from __future__ import annotations

# Texts are UTF-8 whatever the locale is (PEP 540); also where Python's own environment is ignored (-I).
MODE = ("-X", "utf8")
