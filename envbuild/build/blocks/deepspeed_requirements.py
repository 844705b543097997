"""Requirements of Python projects that several recipes share."""

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
