"""The four tiers of checks: what each needs, and which of them run today."""

from __future__ import annotations

TIERS = {"audit": "no GPU needed", "run": "on the CPU", "gpu": "one node with GPUs", "fabric": "several nodes"}
RUNNING = ("audit", "run")
# Recipes have checks of these tiers already. Nothing runs them yet, and every report states it.
COMING = {tier: "envbuild does not run checks of this tier yet" for tier in TIERS if tier not in RUNNING}
