"""Parts of checks: a result that passed, and what an image or a machine must have."""

from __future__ import annotations

from importlib.util import find_spec

from .bench import Bench
from .model import GPU, PASS, NotRunError, Outcome

# layer → its module of Python, for a machine outside of the image
MODULES = {
    "torch": "torch",
    "torch-ucc": "envbuild_torch_ucc",
    "deepspeed": "deepspeed",
    "apex": "apex",
    "flash-attn": "flash_attn",
    "transformer-engine": "transformer_engine",
}


def good(name: str, detail: str, **values: object) -> Outcome:
    """Return a result that passed."""
    return Outcome(name, GPU, PASS, detail, **values)  # type: ignore[arg-type]


def need_layer(bench: Bench, name: str) -> None:
    """Raise NotRunError if the image has no such layer or component; outside of it, also if Python has no such
    module."""
    if name not in bench.job.layers and name not in bench.job.versions:
        raise NotRunError(f"the image has no {name}")
    if bench.outside and name in MODULES and find_spec(MODULES[name]) is None:
        raise NotRunError(f"this Python has no {MODULES[name]}")
