"""EFA takes huge pages where there are some, and a program that forks then fails for want of memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..facts.network import efa_devices
from ..host import Host
from ..model import MINOR, Need, Result, failed, not_applicable, not_run, passed

GROUP = "limits"


def check(host: Host, need: Need) -> Iterator[Result]:
    """Compare reserved and free huge pages."""
    if need.fabric != "efa" and not efa_devices(host):
        yield not_applicable("there is no EFA device")
        return
    text = host.text("/proc/meminfo")
    values = {key: int(number) for key, number in re.findall(r"^HugePages_(Total|Free):\s+(\d+)", text, re.MULTILINE)}
    if len(values) < 2:
        yield not_run("/proc/meminfo has no huge pages")
    elif values["Total"] and not values["Free"]:
        detail = f"all {values['Total']} huge pages are in use: a fork in an EFA program fails"
        yield failed(detail, MINOR, "export FI_EFA_USE_HUGE_PAGE=0")  # a job that runs may have them
    else:
        yield passed(f"{values['Free']} of {values['Total']} free")
