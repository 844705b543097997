"""Names of hardware and software of which there are no facts: a similar name that is known would be a wrong hint."""

from __future__ import annotations

import re

from envbuild.matrix.facts.value_match import fold_name

# Accelerators, by vendor; names as `fold_name` leaves them.
VENDORS = {
    "AMD": r"(amd|radeon|instinct|mi[0-9]{2,3}[a-z]*|rx[0-9]{3,4}.*|w[67][0-9]00)",
    "Intel": r"(intel|gaudi|hl[0-9]{3}|(data ?center ?gpu ?)?max1[15][05]0|pontevecchio|arc)",
    "Google": r"(google|(cloud)?tpu|v[2-7][ep]$|trillium|ironwood)",
    "Apple": r"(apple|m[1-9](pro|max|ultra)?$)",
    "Qualcomm": r"(qualcomm|aic?100)",
}
# Other names in the place of a GPU, an instance type or an architecture.
OTHERS = {
    r"(aws )?graviton *[1-9]?e?$": "AWS Graviton is a CPU: write arch=arm64, and the GPU as gpu=NAME",
    r"dl[12]q?(\.|$)": "instance types with accelerators of Intel and Qualcomm are not covered",
    r"g4ad(\.|$)": "instance types with GPUs of AMD are not covered",
    r"([cmrtxi]|i[ms]|hpc)[0-9]+g[a-z]*(\.|$)": "instance types without a GPU are not covered: write arch=arm64",
}

COMPONENTS = {
    r"megatron([-_](core|lm))?$": "Megatron-Core is not covered: ask about torch, apex and transformer-engine",
}


def hint_component_not_covered(name: str) -> str:
    """Return what to ask about in place of a component of which there are no facts; "" for any other name."""
    return next((hint for pattern, hint in COMPONENTS.items() if re.match(pattern, name.strip().lower())), "")


def hint_not_covered(component: str, text: str) -> str:
    """Return what the facts do not cover, for a name that is none of a component's; "" for any other name."""
    for vendor, pattern in VENDORS.items() if component == "gpu" else ():
        if re.match(pattern, fold_name(text)):
            return f"{vendor} is not covered: the facts are about GPUs of NVIDIA and AWS Neuron devices"
    for pattern, hint in OTHERS.items() if component in ("gpu", "instance", "arch") else ():
        if re.match(pattern, text.strip().lower()):
            return hint
    return ""
