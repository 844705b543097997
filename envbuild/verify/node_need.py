"""The expectations of a target about a node, for the checks of `envbuild.doctor`."""

from __future__ import annotations

from envbuild.doctor.model import Need
from envbuild.spec.target import Target


def node_need(target: Target) -> Need:
    """Return the properties of a target's nodes as plain data."""
    return Need(
        source=target.name,
        arch=target.arch,
        cpu=target.cpu,
        gpu=target.gpu,
        gpus=target.gpus,
        nvidia=bool(target.sm),
        driver=target.driver,
        fabric=target.fabric,
        nics=target.nics.count if target.nics else 0,
        rate=target.nics.rate if target.nics else 0,
        layer=target.nics.layer if target.nics else "",
        names=tuple(target.nics.names) if target.nics else (),
        efa=target.efa,
        imex=target.imex,
    )
