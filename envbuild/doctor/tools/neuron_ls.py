"""``neuron-ls -j``: AWS Neuron devices as a JSON list. Only the device and its number of cores are in every version."""

from __future__ import annotations

import json
from typing import NamedTuple


class NeuronDevice(NamedTuple):
    """A Neuron device and its cores."""

    number: int
    cores: int


def parse_neuron(text: str) -> list[NeuronDevice] | None:
    """Return the devices; None for a text that is not whole."""
    try:
        rows = json.loads(text)
        return [NeuronDevice(int(row["neuron_device"]), int(row["nc_count"])) for row in rows]
    except (ValueError, TypeError, KeyError):
        return None
