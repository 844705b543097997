"""Requirements, and a change of the source, that the recipes of DeepSpeed and of its fork share."""

from __future__ import annotations

# requirements.txt of DeepSpeed 0.16 to 0.19 without torch; DeeperSpeed 3.0 is made of 0.16.5.
DEEPSPEED = (
    "einops",
    "hjson",
    "msgpack",
    "ninja",
    "numpy",
    "packaging>=20.0",
    "psutil",
    "py-cpuinfo",
    "pydantic>=2.0.0",
    "tqdm",
)
# Expression for sed. `import deepspeed`, in setup.py too, queries the architecture of the machine's GPU if triton is
# installed (from 0.17.5 on only where there is a GPU).
DEEPSPEED_NO_GPU = r"s/^( *major, _ = torch\.cuda\.get_device_capability\(\))$/\1 if self.is_available() else (0, 0)/"
