"""Logs judged by the fabric of the target: lines that are faults on InfiniBand are normal with EFA or Ethernet."""

from __future__ import annotations

import pytest

from envbuild.doctor.job_log import read_log
from envbuild.doctor.log_results import log_results
from envbuild.doctor.model import ADMINISTRATOR, MINOR, PASS, USER, Need, Result

pytestmark = pytest.mark.unit

NCCL = "n1:1:2 [0] NCCL INFO "
WITHOUT_PLUGIN = [
    NCCL + "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
    NCCL + "NET/IB : No device found.",
    NCCL + "Using network Socket",
]
BOUNCED = [NCCL + "Using network IB", NCCL + "Channel 00/0 : 1[1] -> 8[0] [send] via NET/IB/0"]
EFA = Need(source="p5-efa", fabric="efa", gpu="H100", nvidia=True)
IB = Need(source="h100-ib", fabric="infiniband", gpu="H100", nvidia=True)


def results(lines: list[str], need: Need) -> dict[str, Result]:
    return {one.check: one for one in log_results(read_log(lines), need)}


def test_an_efa_job_without_the_plugin_misses_the_plugin_and_no_infiniband() -> None:
    found = results(WITHOUT_PLUGIN, EFA)
    assert set(found) == {"plugin-missing", "network"}
    assert found["plugin-missing"].severity == USER
    assert "aws-ofi-nccl" in found["plugin-missing"].fix
    assert "NCCL_NET=Libfabric" in found["network"].fix


def test_no_hint_for_efa_hides_its_devices() -> None:
    missing = [NCCL.replace("INFO", "WARN") + "Failed to initialize any NET plugin"]
    for lines in (WITHOUT_PLUGIN, missing):
        assert not any("MELLANOX" in one.fix or "NCCL_IB" in one.fix for one in results(lines, EFA).values())


def test_infiniband_names_its_device_files() -> None:
    assert "MELLANOX_VISIBLE_DEVICES=all" in results(WITHOUT_PLUGIN, IB)["no-device"].fix
    assert "with EFA the line is normal" in results(WITHOUT_PLUGIN, Need())["no-device"].fix


def test_ethernet_alone_has_no_device_and_no_plugin() -> None:
    found = results(WITHOUT_PLUGIN, Need(source="lambda-a6000", fabric="ethernet"))
    assert {name: one.status for name, one in found.items()} == {"network": PASS}


@pytest.mark.parametrize(("need", "severity"), [(IB, ADMINISTRATOR), (Need(), MINOR)])
def test_a_job_without_gpudirect_is_judged_as_a_node_without_it(need: Need, severity: str) -> None:
    found = results(BOUNCED, need)["network"]
    assert (found.severity, found.drains) == (severity, False)


def test_signs_of_another_fabric_are_no_faults() -> None:
    no_efa = ["libfabric:1:1::core:core:fi_getinfo_():1 fi_getinfo: No data available"]
    assert "efa-not-found" not in results([*no_efa, NCCL + "Using network IB"], IB)
    assert "envbuild doctor p5-efa" in results(no_efa, EFA)["efa-not-found"].fix
    assert "efa-not-found" in results(no_efa, Need())
    tcp = ["[1.0] [n1:1:0] ucp_worker.c:1 UCX  INFO    ep_cfg[0]: tag(tcp/lo tcp/eth0)"]
    assert "ucx-tcp-alone" in results(tcp, IB)
    assert "ucx-tcp-alone" not in results(tcp, Need(source="cpu", fabric="ethernet"))


def test_gpudirect_of_efa_has_a_module_of_its_own() -> None:
    lines = [NCCL + "Using network Libfabric", NCCL + "Channel 00/0 : 1[1] -> 8[0] [send] via NET/Libfabric/0"]
    assert "efa_nv_peermem" in results(lines, EFA)["network"].fix
