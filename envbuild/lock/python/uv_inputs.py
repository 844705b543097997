"""Files that uv reads: requirements as a project, packages without dependencies, wheels without content."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from envbuild.core.text import printable
from envbuild.lock.missing_inputs import InvalidInputError
from envbuild.lock.python.index_logins import IndexLogins
from envbuild.lock.python.vendor_index import VendorIndex

PROJECT = "envbuild-{}"  # uv's name for the requirements of a unit in a pyproject.toml


def pyproject_text(
    what: str,
    requirements: Iterable[str],
    vendors: Iterable[VendorIndex],
    omit: Mapping[str, str],
    logins: IndexLogins,
) -> str:
    """Return the requirements as a project of uv's, which assigns each vendor's packages to its index (uv
    documentation, "Package indexes": an explicit index provides only the packages that are assigned to it). `logins`
    gets the passwords.
    """

    def text(value: object) -> str:
        return json.dumps(value, ensure_ascii=False)  # a JSON string is a TOML string

    lines = ["[project]", f"name = {text(PROJECT.format(what))}", 'version = "0"']
    lines.append(f"dependencies = [{', '.join(text(requirement) for requirement in requirements)}]")
    pinned = []
    for number, vendor in enumerate(vendors):
        flat = [] if "://" in vendor.place else ['format = "flat"']
        address = logins.address(f"vendor-{number}", vendor.place)
        lines += ["[[tool.uv.index]]", f'name = "vendor-{number}"', f"url = {text(address)}", *flat]
        lines.append("explicit = true")
        pinned += [
            f'{text(name)} = {{ index = "vendor-{number}" }}' for name in sorted(vendor.packages) if name not in omit
        ]
    # A workspace of its own: uv would search one in the folders above, whose owner could name other indexes, and get
    # the passwords of those here.
    lines += ["[tool.uv.workspace]", "members = []"]
    return "".join(f"{line}\n" for line in (*lines, "[tool.uv.sources]", *pinned))


def requirement_lines(texts: Iterable[str]) -> str:
    """Return the content of a file with requirements. Raises InvalidInputError for one that is more than a line: a
    further line can be an option of uv, which sends variables of the environment anywhere or runs a build."""
    lines = list(texts)
    for line in lines:
        if not line.isprintable() or line.lstrip().startswith("-"):
            raise InvalidInputError(f"'{printable(line)}' is not a requirement", "write NAME, or NAME==VERSION")
    return "".join(f"{line}\n" for line in lines)


def no_dependencies_config(packages: Mapping[str, str]) -> str:
    """Return a configuration of uv's that declares `packages` (name → version) as free of dependencies."""
    return "".join(
        f"[[dependency-metadata]]\nname = {json.dumps(name)}\nversion = {json.dumps(version)}\nrequires-dist = []\n"
        for name, version in packages.items()
    )


def write_dummy_wheel(folder: Path, name: str, version: str) -> None:
    """Write a wheel without content for a package that no index provides: uv resolves only packages with a wheel.

    It lists no dependencies: the recipe that compiles the package lists them, and a base image has them.
    """
    import zipfile

    plain = name.replace("-", "_")
    info = f"{plain}-{version}.dist-info"
    path = folder / f"{plain}-{version}-py3-none-any.whl"
    path.unlink(missing_ok=True)  # of an earlier call; never written through a link
    with zipfile.ZipFile(path, "x") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
