"""Variables that follow from the fabric, the names of its devices, and the image."""

from __future__ import annotations

from dataclasses import replace

import pytest

from envbuild.core.errors import SpecError
from envbuild.net.slurm_site import NodeSettings
from tests.support.launching import make_plan, shipped_target, site, torch_image, variables

pytestmark = pytest.mark.unit

NCCL_TEST = ("all_reduce_perf", "-b", "8")
MPI4PY = torch_image(layers=("ucx", "openmpi", "mpi4py"), versions={}, env={}, target="cpu")


@pytest.mark.parametrize(
    ("target", "net"),
    [
        ("azure-ndv4", "IB"),
        ("h100-ib", "IB"),
        ("b200-ib", "IB"),
        ("p5-efa", "Libfabric"),
        ("lambda-a6000", "Socket"),
        ("lambda-a100", "Socket"),
        ("cpu", None),
        ("trn1", None),
    ],
)
def test_nccl_is_forced_onto_the_fabric(target: str, net: str | None) -> None:
    image = torch_image(target=target)
    assert variables(make_plan(image=image, nodes=2)).get("NCCL_NET") == net
    assert shipped_target("cpu").fabric == "ethernet"  # without GPUs nothing is forced onto it


@pytest.mark.parametrize(
    ("version", "net"), [("1.12.1", "AWS Libfabric"), ("1.13.0", "Libfabric"), ("1.21.1", "Libfabric")]
)
def test_the_name_of_the_plugin_for_efa(version: str, net: str) -> None:
    image = torch_image(target="p5-efa", versions={"aws-ofi-nccl": version, "nccl": "2.30.7"})
    assert variables(make_plan(image=image))["NCCL_NET"] == net


def test_an_image_without_a_plugin_for_efa_is_reported() -> None:
    lacking = make_plan(image=torch_image(target="p5-efa"))
    assert any("no NCCL plugin for EFA" in line for line in lacking.warnings)
    assert "NCCL_NET" not in variables(lacking)  # one node needs no fabric
    assert variables(make_plan(image=torch_image(target="p5-efa"), nodes=2))["NCCL_NET"] == "Libfabric"
    whole = make_plan(image=torch_image(target="p5-efa", versions={"aws-ofi-nccl": "1.21.1", "nccl": "2"}))
    assert not whole.warnings


def test_an_image_without_nccl_has_no_variables_of_it() -> None:
    image = torch_image(layers=("numpy",), versions={"numpy": "2"}, env={})
    found = variables(make_plan(image=image))
    assert not [name for name in ("NCCL_NET", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "UCX_NET_DEVICES") if name in found]


def test_names_of_devices_are_the_site_s() -> None:
    names = tuple(f"ibp{number}" for number in range(8))
    nodes = NodeSettings(nics=names, interface="bond0")
    plan = make_plan(image=torch_image(target="h100-ib"), at=site(nodes=nodes))
    found = variables(plan)
    assert found["NCCL_IB_HCA"] == "=" + ",".join(names)
    assert found["NCCL_SOCKET_IFNAME"] == found["GLOO_SOCKET_IFNAME"] == "bond0"
    assert {item.owner for item in plan.env if item.name.endswith(("IFNAME", "HCA"))} == {"site"}
    unknown = variables(make_plan(image=torch_image(target="h100-ib")))
    assert not {"NCCL_IB_HCA", "NCCL_SOCKET_IFNAME"} & set(unknown)


def test_a_site_replaces_the_names_of_a_machine_type_without_a_reason() -> None:
    nodes = NodeSettings(interface="ens1")
    plan = make_plan(image=torch_image(target="azure-ndv5"), at=site(nodes=nodes))
    assert variables(plan)["NCCL_SOCKET_IFNAME"] == "ens1"
    assert variables(plan)["NCCL_IB_HCA"].startswith("=mlx5_ib0,")
    owners = {item.name: item.owner for item in plan.env}
    assert (owners["NCCL_SOCKET_IFNAME"], owners["NCCL_IB_HCA"]) == ("site", "target")


def test_as_many_nics_as_the_target_has() -> None:
    with pytest.raises(SpecError, match="the site lists 2 NICs, and a node of target 'h100-ib' has 8"):
        make_plan(image=torch_image(target="h100-ib"), at=site(nodes=NodeSettings(nics=("a", "b"))))


def test_ucx_starts_nccl_over_the_interface_alone() -> None:
    found = variables(make_plan(NCCL_TEST))
    assert (found["UCX_NET_DEVICES"], found["UCX_TLS"]) == ("eth0", "tcp")


def test_an_open_mpi_that_is_compiled_without_ucx_uses_the_interface_alone() -> None:
    """It takes all interfaces of a host, also those that no other host reaches (virbr0)."""
    image = torch_image(layers=("torch", "nccl", "openmpi", "nccl-tests"))
    distribution = variables(make_plan(NCCL_TEST, image=image))
    assert distribution["UCX_TLS"] == "tcp" and "OMPI_MCA_btl_tcp_if_include" not in distribution
    compiled = replace(image, env={**image.env, "PATH": f"/opt/openmpi/bin:{image.env['PATH']}"})
    found = variables(make_plan(NCCL_TEST, image=compiled))
    assert found["OMPI_MCA_btl_tcp_if_include"] == "eth0"
    assert not {"UCX_TLS", "UCX_NET_DEVICES"} & found.keys()


@pytest.mark.parametrize("command", [("ucc_perftest", "-c", "allreduce"), ("osu_allreduce",)])
def test_ucx_transfers_data_over_the_fabric(command: tuple[str, ...]) -> None:
    found = variables(make_plan(command))
    assert found["UCX_NET_DEVICES"].startswith("mlx5_ib0:1,mlx5_ib1:1,")
    assert "UCX_TLS" not in found


def test_ranks_in_containers_of_their_own_share_no_memory_below_proc() -> None:
    command = ("osu_latency",)
    assert variables(make_plan(command, form="mpirun"))["UCX_POSIX_USE_PROC_LINK"] == "n"
    assert "UCX_POSIX_USE_PROC_LINK" not in variables(make_plan(command))


def test_torch_with_ucc_uses_the_fabric() -> None:
    image = torch_image(layers=("ucx", "ucc", "torch", "torch-ucc", "nccl"))
    assert variables(make_plan(image=image))["UCX_NET_DEVICES"].startswith("mlx5_ib0:1")
    assert "UCX_NET_DEVICES" not in variables(make_plan())  # gloo and NCCL use no UCX


def test_mpi_uses_ucx_on_one_node_without_infiniband() -> None:
    several = variables(make_plan(("python", "t.py"), image=MPI4PY, nodes=2))
    assert several == {"PMIX_MCA_gds": "hash", "PMIX_MCA_psec": "^munge"}
    found = variables(make_plan(("python", "t.py"), image=MPI4PY))
    assert found == {
        "OMPI_MCA_opal_common_ucx_devices": "any",
        "OMPI_MCA_opal_common_ucx_tls": "any",
        "OMPI_MCA_pml": "ucx",
        "PMIX_MCA_gds": "hash",
        "PMIX_MCA_psec": "^munge",
        "UCX_TLS": "self,sm,tcp",
    }


def test_trays_of_one_nvlink_domain() -> None:
    found = variables(make_plan(image=torch_image(target="gb200-nvl", arch="arm64")))
    assert (found["NVIDIA_IMEX_CHANNELS"], found["NCCL_CUMEM_ENABLE"], found["NCCL_MNNVL_ENABLE"]) == ("0", "1", "1")
