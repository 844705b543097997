"""Variables that follow from the fabric, its devices and the image: NCCL is forced onto the fabric, so that a fall-back
to TCP ends the job instead of slowing it down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envbuild.core.errors import SpecError
from envbuild.launch.clients import older
from envbuild.launch.model import LaunchImage, Setting
from envbuild.launch.programs import has_torch, is_nccl_test, is_ucc_program
from envbuild.net.slurm_site import NodeSettings
from envbuild.spec.target import Target

RENAMED = "1.13.0"  # aws-ofi-nccl: its network is called Libfabric from here on, AWS Libfabric before
PLUGINS = ("nccl-rdma-sharp", "hpcx")  # with a NCCL plugin for InfiniBand of their own


class Devices(NamedTuple):
    """Names of network devices, each with who states it."""

    nics: tuple[str, ...]
    nics_owner: str
    interface: str
    interface_owner: str


def find_devices(target: Target, nodes: NodeSettings) -> Devices:
    """Return the names of the devices: the site's, else those of a machine type. Raises SpecError if their number is
    not the target's."""
    own = target.nics
    if nodes.nics and own and len(nodes.nics) != own.count:
        raise SpecError(
            f"the site lists {len(nodes.nics)} NICs, and a node of target '{target.name}' has {own.count}",
            hint=f"list the {own.layer} devices of the fabric in nics of site.yaml: ls /sys/class/infiniband",
        )
    names = nodes.nics or (own.names if own else ())
    interface = nodes.interface or (own.interface if own else "")
    owners = ["site" if stated else "target" for stated in (nodes.nics, nodes.interface)]
    return Devices(names, owners[0], interface, owners[1])


def uses_nccl(image: LaunchImage, target: Target) -> bool:
    """Return whether programs of an image communicate with NCCL. A third-party image for GPUs is taken for one that
    does."""
    if not target.sm:
        return False
    foreign = not image.layers and not image.versions
    return foreign or image.has("nccl", "msccl", "torch", "torch-cuda", "nccl-tests") or "NCCL_VERSION" in image.env


def uses_ucx(image: LaunchImage) -> bool:
    """Return whether programs of an image may communicate with UCX: that of a layer, or the distribution's, for which
    its Open MPI is compiled. One that is compiled in an image without UCX has none."""
    return image.has("ucx", "ucc", "hpcx", "torch-ucc") or (image.has("openmpi") and not has_compiled_mpi(image))


def has_compiled_mpi(image: LaunchImage) -> bool:
    """Return whether the Open MPI of an image is that of ``openmpi: {provider: source}``."""
    return "/opt/openmpi/bin" in image.env.get("PATH", "").split(":")


def nccl_net(target: Target, image: LaunchImage, nodes: int) -> Setting | None:
    """Return NCCL_NET for a fabric and an image; None where NCCL is not used, or there is no fabric. An image without
    the plugin of the fabric keeps one node: NCCL opens its network for each communicator, also within a node."""
    if not uses_nccl(image, target) or target.fabric == "none" or (nodes == 1 and lacks_plugin(target, image)):
        return None
    if target.fabric == "infiniband":
        because = "NCCL falls back to TCP in silence when InfiniBand cannot be used; forced, the job fails at once"
        if image.has(*PLUGINS):
            because += "; IB is NCCL's own, and the name of the image's plugin (IBext_v…) depends on NCCL"
        return Setting("NCCL_NET", "IB", "launch", because)
    if target.fabric == "efa":
        version = image.versions.get("aws-ofi-nccl", "")
        name = "AWS Libfabric" if version and older(version, RENAMED) else "Libfabric"
        plugin = f"aws-ofi-nccl {version}" if version else "aws-ofi-nccl since 1.13"
        because = f"the name of {plugin}; NCCL falls back to TCP in silence when EFA cannot be used; forced, it fails"
        return Setting("NCCL_NET", name, "launch", because)
    because = "the nodes have Ethernet alone: devices and plugins for other fabrics are not tried"
    return Setting("NCCL_NET", "Socket", "launch", because)


def lacks_plugin(target: Target, image: LaunchImage) -> bool:
    """Return whether NCCL of an image cannot use the fabric for want of a plugin."""
    known = bool(image.layers or image.versions)
    return target.fabric == "efa" and known and uses_nccl(image, target) and not image.has("aws-ofi-nccl", "efa")


def plugin_warnings(target: Target, image: LaunchImage) -> tuple[str, ...]:
    """Return a warning for an image whose NCCL cannot use the fabric."""
    if lacks_plugin(target, image):
        return ("the image has no NCCL plugin for EFA, so a job on several nodes fails: add layer aws-ofi-nccl",)
    return ()


def fabric_settings(
    target: Target, image: LaunchImage, devices: Devices, command: Sequence[str], nodes: int, *, mpi: bool
) -> Iterator[Setting]:
    """Yield the variables that follow from the fabric and the names of its devices."""
    if net := nccl_net(target, image, nodes):
        yield net
    if target.imex:
        yield Setting("NVIDIA_IMEX_CHANNELS", "0", "launch", "channel 0 of the NVLink domain is shown to the container")
        yield Setting("NCCL_CUMEM_ENABLE", "1", "launch", "memory that GPUs of other trays reach needs cuMem")
    if devices.interface:
        yield from _interface_settings(target, image, devices)
    fabric = target.fabric == "infiniband"
    if devices.nics and fabric and uses_nccl(image, target):
        because = "the devices of the fabric, exactly these; others are Ethernet"
        yield Setting("NCCL_IB_HCA", "=" + ",".join(devices.nics), devices.nics_owner, because)
    yield from _ucx_settings(target, image, devices, command, mpi=mpi)


def _interface_settings(target: Target, image: LaunchImage, devices: Devices) -> Iterator[Setting]:
    shared = "the interface that all nodes share"
    name, owner = devices.interface, devices.interface_owner
    if uses_nccl(image, target):
        yield Setting("NCCL_SOCKET_IFNAME", name, owner, f"NCCL's first contact: {shared}")
    if image.has("openmpi") and not uses_ucx(image):
        because = f"Open MPI without UCX, which takes every interface of a host: {shared}"
        yield Setting("OMPI_MCA_btl_tcp_if_include", name, owner, because)
    if has_torch(image):
        yield Setting("GLOO_SOCKET_IFNAME", name, owner, f"gloo's traffic: {shared}")


def _ucx_settings(
    target: Target, image: LaunchImage, devices: Devices, command: Sequence[str], *, mpi: bool
) -> Iterator[Setting]:
    """Yield UCX's devices: those of the fabric where UCX transfers data, the interface where it only starts NCCL."""
    if not uses_ucx(image):
        return
    if mpi and is_nccl_test(command):
        yield Setting("UCX_TLS", "tcp", "launch", "UCX transfers MPI's start alone; NCCL the data")
        if devices.interface:
            because = "UCX transfers MPI's start alone, over the interface that all nodes share"
            yield Setting("UCX_NET_DEVICES", devices.interface, devices.interface_owner, because)
    elif devices.nics and target.fabric == "infiniband" and (mpi or is_ucc_program(command, image)):
        ports = ",".join(f"{name}:1" for name in devices.nics)
        because = "UCX transfers the data, over the ports of the fabric and no Ethernet port"
        yield Setting("UCX_NET_DEVICES", ports, devices.nics_owner, because)
