"""The transport that was forced must have been used by all ranks, over all devices, and without a copy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from envbuild.gpu.tools.nccl_log import NcclLog, parse_nccl_log
from envbuild.gpu.transport import port_count, transport_facts, transport_faults
from tests.support.gpu_bench import job, recorded

pytestmark = pytest.mark.unit

IB = parse_nccl_log(recorded("nccl-log.ib.txt"))
EFA = parse_nccl_log(recorded("nccl-log.efa.txt"))
ROCE = parse_nccl_log(recorded("nccl-log.roce.txt"))


def faults(log: NcclLog, ranks: int = 2, **values: Any) -> list[str]:
    own = {"net": "IB", **values}
    return transport_faults([IB, log], job(**own), ranks, nodes=2)


def test_two_ranks_over_the_fabric_have_no_fault() -> None:
    assert faults(IB) == []
    assert transport_faults([EFA, EFA], job(fabric="efa", nics=32, efa=32, net="libfabric"), 2, nodes=2) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"networks": ("Socket",)}, "IB was forced"),
        ({"devices": IB.devices[:7]}, "7, 8 ports"),
        ({"channels": (("NET", 2), ("NET/GDRDMA", 2))}, "without GPUDirect"),
        ({"channels": (("P2P", 2), ("SHM", 1))}, "host memory (SHM)"),
        ({"closed": 0}, "incomplete"),
        ({"networks": ()}, "incomplete"),
        ({"made": 0, "closed": 0}, "incomplete"),
    ],
)
def test_each_fault_is_found(change: dict[str, Any], words: str) -> None:
    assert words in "; ".join(faults(replace(IB, **change)))


def test_a_rank_without_a_log_is_a_fault() -> None:
    assert "2 logs of NCCL for 3 ranks" in faults(IB, ranks=3)


def test_networks_are_compared_without_case_and_also_without_a_forced_one() -> None:
    assert faults(replace(IB, networks=("ib",))) == []
    mixed = transport_faults([IB, replace(IB, networks=("Socket",))], job(), 2, nodes=2)
    assert any("different networks" in fault for fault in mixed)


def test_the_number_of_efa_devices() -> None:
    found = transport_faults([EFA], job(fabric="efa", efa=4, net="Libfabric"), 1, nodes=2)
    assert found == ["ranks use 32 EFA devices, and a node has 4"]


def test_two_nodes_without_a_path_between_them() -> None:
    alone = replace(IB, channels=(("P2P", 4),))
    assert "no log has a path over the network" in transport_faults([alone], job(net="IB"), 1, nodes=2)
    assert transport_faults([alone], job(net="IB"), 1, nodes=1) == []
    domain = replace(IB, channels=(("MNNVL", 4),))
    assert transport_faults([domain], job(net="IB"), 1, nodes=2) == []


def test_ports_of_merged_devices_are_counted() -> None:
    assert (port_count(IB), port_count(ROCE)) == (8, 4)


def test_facts_of_all_ranks() -> None:
    facts = transport_facts([IB, IB])
    assert (facts["networks"], facts["ports"], facts["paths"]) == ({"IB": 2}, [8], {"NET/GDRDMA": 4, "P2P": 2})
    assert facts["nccl"] == ["2.30.7+cuda13.0"]
