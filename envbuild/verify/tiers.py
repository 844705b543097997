"""The four tiers of checks: what each needs, and which of them run on this machine."""

from __future__ import annotations

TIERS = {"audit": "no GPU needed", "run": "on the CPU", "gpu": "one node with GPUs", "fabric": "several nodes"}
RUNNING = ("audit", "run")  # of every verification
MEASURED = ("gpu", "fabric")  # in jobs of their own, on nodes with GPUs
ELSEWHERE = {
    "gpu": "it needs a node with GPUs: envbuild verify NAME --tier gpu",
    "fabric": "it needs several nodes: envbuild verify NAME --tier fabric -N 2",
}
