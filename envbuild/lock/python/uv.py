"""Runs of uv, the resolver of the Python half, with the same indexes, certificates and proxy as all downloads."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envbuild.core.errors import FREE_SOME, ConflictError, EngineError, EnvbuildError, InputError, SpecError
from envbuild.lock.missing_inputs import InvalidInputError
from envbuild.lock.python.vendor_index import VendorIndex
from envbuild.net.site import Site, mirror_line, mirrors_setting
from envbuild.net.uv_program import clean_environment, uv_binary

PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==(\S+)")
MAX_RETRIED = 8  # packages that are tried one by one before a new version is accepted for them
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
# Only annotations list the users of a package: a pylock.toml of uv 0.13 has the same hashes and no dependencies.
VIA = re.compile(r"^ +# via (.+)$", re.MULTILINE)
UNFIT = "no wheels with a matching"  # uv's message for a version whose files are for other platforms
PROJECT = "envbuild-{}"  # uv's name for the requirements of a unit in a pyproject.toml


@dataclass(frozen=True, slots=True)
class Pin:
    """One resolved package: `hashes` are the sha256 of all its files in the index; `via` its users, as uv
    lists them."""

    name: str
    version: str
    hashes: frozenset[str]
    via: str = ""

    @property
    def users(self) -> tuple[str, ...]:
        """The packages among its users."""
        return tuple(name for name in self.via.split(", ") if re.fullmatch(r"[a-z0-9][a-z0-9-]*", name))


def site_arguments(site: Site, *, turned: bool = False) -> list[str]:
    """Return uv's options for the site's indexes; all indexes are one pool, as for pip (uv's own default uses the first
    that has a name). `turned`: in reverse order.
    """
    python = site.python()
    indexes = python.indexes[::-1] if turned else python.indexes
    arguments = ["--no-config", "--index-strategy", "unsafe-best-match"]
    if indexes:
        arguments += ["--default-index", indexes[0]]
    else:
        arguments.append("--no-index")
    for index in indexes[1:]:
        arguments += ["--index", index]
    for links in python.links:
        arguments += ["--find-links", links]
    for name in python.insecure:
        arguments += ["--allow-insecure-host", name]
    return arguments


def site_environment(site: Site) -> dict[str, str]:
    """Return the environment for uv: the site's certificates and proxy."""
    environment = clean_environment() | {"UV_PYTHON_DOWNLOADS": "never", "NO_COLOR": "1", "UV_NO_WRAP": "1"}
    certificates = site.certificates()
    if certificates:
        environment["SSL_CERT_DIR" if Path(certificates).is_dir() else "SSL_CERT_FILE"] = certificates
    if site.proxy:
        environment |= {"HTTP_PROXY": site.proxy, "HTTPS_PROXY": site.proxy, "ALL_PROXY": site.proxy}
    return environment


@dataclass(frozen=True, slots=True)
class Resolver:
    """A resolver of requirements for one Python version and platform. `workdir` is a private folder, `cache` uv's
    cache; the packages that `vendors` name come from their indexes only."""

    site: Site
    python: str  # 3.13 or 3.13.5
    platform: str  # x86_64-manylinux_2_40
    workdir: Path
    cache: Path
    vendors: tuple[VendorIndex, ...] = ()

    def resolve(
        self,
        what: str,
        requirements: Iterable[str],
        *,
        constraints: Iterable[str] = (),
        prefer: Mapping[str, str] | None = None,
        omit: Mapping[str, str] | None = None,
    ) -> dict[str, Pin]:
        """Return name → Pin of `requirements` and all their dependencies, wheels only.

        `what` names the unit in messages. `prefer` (name → version) is used where possible; `omit` (name →
        version) are names that are resolved but not returned. Raises ConflictError (no solution), SpecError (only an
        sdist exists), InputError (unknown or unreachable).
        """
        wanted, bounds, keep, omit = list(requirements), list(constraints), dict(prefer or {}), omit or {}
        bounds += [f"{name}=={version}" for name, version in omit.items()]
        pins = self._compile(what, wanted, bounds, keep, omit)
        # uv 0.13 loses a preference when the first of several indexes that has this version has it for other platforms
        # only. Changed versions are requested once more by a constraint (and no preference, which would be lost
        # again), together, then one by one.
        moved = changed_names(keep, pins)
        soft = dict(keep)
        for names in [moved, *([name] for name in moved[:MAX_RETRIED])] if moved else ():
            constraint = [f"{name}=={keep[name]}" for name in names]
            rest = {name: version for name, version in soft.items() if name not in names}
            try:
                found = self._compile(what, wanted, [*bounds, *constraint], rest, omit)
            except EnvbuildError:
                continue  # it is no longer available, or no longer fits
            if set(changed_names(keep, found)) < set(changed_names(keep, pins)):  # not at the cost of another package
                pins, soft, bounds = found, rest, [*bounds, *constraint]
            if not changed_names(keep, pins):
                break
        return pins

    def _compile(
        self,
        what: str,
        requirements: list[str],
        constraints: list[str],
        prefer: Mapping[str, str],
        omit: Mapping[str, str],
    ) -> dict[str, Pin]:
        """Resolve once. uv accepts an index for a package, but only for packages that are required by name. So the
        dependencies from a vendor's index are determined first, and then required as well.
        """
        owners = {name: vendor for vendor in self.vendors for name in vendor.packages if name not in omit}
        named = {str(canonicalize_name(Requirement(text).name)) for text in requirements} & owners.keys()

        def run(also: frozenset[str] = frozenset(), *, pool: bool = False) -> dict[str, Pin]:
            for name in sorted(named | also):
                owners[name].check(name)
            return self._run(what, [*requirements, *sorted(also)], constraints, prefer, omit, pool=pool)

        also: frozenset[str] = frozenset()
        try:
            pins = run()
        except (ConflictError, InputError, SpecError) as error:
            if not owners:
                raise
            try:
                found = run(pool=True)  # all indexes as one: only the names that come out of it are of use
            except EnvbuildError:
                raise error from None
            also = frozenset(owners.keys() & found.keys() - named)
            if not also:
                raise
            pins = run(also)
        while more := owners.keys() & pins.keys() - named - also:
            also |= more
            pins = run(also)
        # A package without users, because another version of its user was chosen, is not required either.
        idle = {name for name in also if name in pins and pins[name].via == f"{PROJECT.format(what)} (pyproject.toml)"}
        if idle:
            fewer = run(also - idle)
            if not owners.keys() & fewer.keys() - named - (also - idle):
                pins = fewer
        return pins

    def _run(
        self,
        what: str,
        requirements: list[str],
        constraints: list[str],
        prefer: Mapping[str, str],
        omit: Mapping[str, str],
        *,
        pool: bool,
        turned: bool = False,
    ) -> dict[str, Pin]:
        """Run uv once; with `pool` the vendors' indexes are open to every package, with `turned` the indexes are in
        reverse order."""
        folder = self.workdir / what
        folder.mkdir(exist_ok=True)
        bounds, output = folder / "constraints.txt", folder / "requirements.txt"
        bounds.write_text("".join(f"{line}\n" for line in constraints))
        # uv takes the pins of an existing output file as preferences.
        output.write_text("".join(f"{name}=={version}\n" for name, version in sorted(prefer.items())))
        command = [uv_binary(), "pip", "compile", "--quiet", *site_arguments(self.site, turned=turned)]
        command += ["--python", sys.executable, "--python-version", self.python, "--python-platform", self.platform]
        command += ["--generate-hashes", "--no-build", "--no-header", "--cache-dir", str(self.cache)]
        command += ["--annotation-style", "line"]
        command += ["--constraints", bounds.name, "--output-file", output.name]
        if self.vendors:
            source = folder / "pyproject.toml"
            source.write_text(pyproject_text(what, requirements, self.vendors, omit))
            source.chmod(0o600)  # an address may hold a password
            if "--no-index" in command:  # which would close the vendors' indexes too
                (folder / "none").mkdir(exist_ok=True)
                command[command.index("--no-index") : command.index("--no-index") + 1] = [
                    "--default-index",
                    (folder / "none").as_uri(),
                ]
            for vendor in self.vendors if pool else ():
                command += ["--index" if "://" in vendor.place else "--find-links", vendor.place]
        else:
            source = folder / "requirements.in"
            source.write_text("".join(f"{line}\n" for line in requirements))
        for name, version in omit.items():
            write_dummy_wheel(folder, name, version)
            command += ["--no-emit-package", name]
        if omit:
            # An index may have the same version too, with a wheel that fits better: its dependencies must not be
            # used.
            (folder / "uv.toml").write_text(no_dependencies_config(omit))
            command += ["--find-links", str(folder)]
            command[command.index("--no-config") : command.index("--no-config") + 1] = ["--config-file", "uv.toml"]
        done = subprocess.run(
            [*command, source.name],
            cwd=folder,
            env=site_environment(self.site),
            capture_output=True,
            text=True,
            check=False,
        )
        # uv 0.13 uses a preferred version from the first index that has it, maybe for other platforms only.
        if done.returncode and UNFIT in done.stderr and not turned and len(self.site.python().indexes) > 1:
            with suppress(EnvbuildError):
                return self._run(what, requirements, constraints, prefer, omit, pool=pool, turned=True)
        if done.returncode:
            raise _resolution_error(what, done.stderr.replace(f"{PROJECT.format(what)} depends on", "you require"))
        return parse_pins(output.read_text())


def pyproject_text(
    what: str, requirements: Iterable[str], vendors: Iterable[VendorIndex], omit: Mapping[str, str]
) -> str:
    """Return the requirements as a project of uv's, which assigns each vendor's packages to its index (uv
    documentation, "Package indexes": an explicit index provides only the packages that are assigned to it).
    """

    def text(value: object) -> str:
        return json.dumps(value, ensure_ascii=False)  # a JSON string is a TOML string

    lines = ["[project]", f"name = {text(PROJECT.format(what))}", 'version = "0"']
    lines.append(f"dependencies = [{', '.join(text(requirement) for requirement in requirements)}]")
    pinned = []
    for number, vendor in enumerate(vendors):
        flat = [] if "://" in vendor.place else ['format = "flat"']
        lines += ["[[tool.uv.index]]", f'name = "vendor-{number}"', f"url = {text(vendor.place)}", *flat]
        lines.append("explicit = true")
        pinned += [
            f'{text(name)} = {{ index = "vendor-{number}" }}' for name in sorted(vendor.packages) if name not in omit
        ]
    return "".join(f"{line}\n" for line in (*lines, "[tool.uv.sources]", *pinned))


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
    with zipfile.ZipFile(folder / f"{plain}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def changed_names(keep: Mapping[str, str], pins: Mapping[str, Pin]) -> list[str]:
    """Return the names that are in `pins` with another version than in `keep`."""
    return [name for name, version in keep.items() if name in pins and pins[name].version != version]


def parse_pins(text: str) -> dict[str, Pin]:
    """Return the pins of a requirements file with hashes, by normalized name."""
    pins: dict[str, Pin] = {}
    for block in re.split(r"\n(?=\S)", text):
        if match := PIN.match(block):
            via = VIA.search(block)
            pins[match[1]] = Pin(match[1], match[2], frozenset(HASH.findall(block)), via[1] if via else "")
    return pins


def _resolution_error(what: str, stderr: str) -> EnvbuildError:
    """Return uv's message as the error of the matching type."""
    text = "\n".join(line for line in stderr.strip().splitlines() if not line.startswith("warning:")).strip()
    text = text.removeprefix("error: ") or "uv failed without a message"
    message = f"the Python packages of '{what}' cannot be resolved: {text}"
    if "(os error 28)" in text or "(os error 122)" in text:  # ENOSPC, EDQUOT
        return EngineError(message, FREE_SOME)
    if "building from source is disabled" in text:
        return SpecError(
            message, "a package without a wheel is compiled by a recipe with wheel=True: add it under layers:"
        )
    if "was not found in the package registry" in text or "was not found in the provided package locations" in text:
        line = mirror_line("python:", "ADDRESS, …")
        hint = f"check the name; configure other indexes in site.yaml:  {mirrors_setting(line)}"
        return InvalidInputError(message, hint, mirror_lines=(line,))
    if "No solution found" in text:
        return ConflictError(message, "loosen one of the named versions in the spec")
    line = mirror_line("python:", "ADDRESS")
    hint = f"check the network, or configure another index in site.yaml:  {mirrors_setting(line)}"
    return InputError(message, hint, mirror_lines=(line,))
