"""Stanzas of Debian's control files (Debian policy 5.1), in archives and in dpkg's database."""

from __future__ import annotations


def parse_fields(stanza: str) -> dict[str, str]:
    """Return field → value; continuation lines keep their line ends. One that continues no field is ignored."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in stanza.split("\n"):
        if line[:1] in (" ", "\t"):
            lines.append(line)
        elif ":" in line:
            key, _, value = line.partition(":")
            found[key] = lines = [value.strip()]
    return {key: "\n".join(lines) for key, lines in found.items()}


def installed_names(status: str) -> frozenset[str]:
    """Return the names of the packages that a dpkg status file lists as installed, as ``NAME`` and as ``NAME:ARCH``.

    Raises ValueError for a stanza without a package, which dpkg refuses, too."""
    found: set[str] = set()
    for stanza in status.split("\n\n"):
        values = parse_fields(stanza.lstrip("\n"))
        if values and "Package" not in values:
            raise ValueError(f"it has a stanza without a package, after {sorted(found)[-1] if found else 'its begin'}")
        if values.get("Status", "").endswith(" installed"):
            found |= {values["Package"], f"{values['Package']}:{values.get('Architecture', '')}"}
    return frozenset(found)
