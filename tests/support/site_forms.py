"""Forms of writing of a site file, which envbuild reads, or reports that it cannot read them."""

from __future__ import annotations

TEXTS = [
    "schema: 1\nmirrors: {}\n", '"schema": 1\n', "{mirrors: {}, schema: 1}\n", "\ufeffschema: 1\n", " schema: 1\n",
    "schema : 1\n", "env: {DAY: 2026-02-30}\n'schema': 1\n", "mirrors:\t{}\n\"schema\": 1\n",
    "store: x\rschema: 1\r", "partition: é\n schema: 1\n",
]  # fmt: skip
SITES = [*(text.encode() for text in TEXTS), TEXTS[-1].encode("latin-1"), TEXTS[0].encode("utf-16")]
