"""``fi_info``: the endpoints that libfabric offers, one block for each, indented or not.

The name of the fabric differs between versions (``EFA-fe80::…``, ``efa``, ``efa-direct``), so that devices are counted
by their domains for reliable datagrams."""

from __future__ import annotations


def parse_endpoints(text: str) -> tuple[list[dict[str, str]], bool]:
    """Return the endpoints, each key → value, and whether each has all its lines."""
    endpoints: list[dict[str, str]] = []
    for line in text.splitlines():
        key, colon, value = line.strip().partition(":")
        if key == "provider":
            endpoints.append({})
        if endpoints and colon:
            endpoints[-1][key] = value.strip()
    whole = [{"provider", "domain", "type", "protocol"} <= set(one) for one in endpoints]
    return endpoints, bool(endpoints) and all(whole)


def rdm_domains(endpoints: list[dict[str, str]]) -> set[str]:
    """Return the devices with an endpoint for reliable datagrams."""
    found = [one.get("domain", "") for one in endpoints if one.get("type") == "FI_EP_RDM"]
    return {name[:-4] if name.endswith("-rdm") else name for name in found if name}
