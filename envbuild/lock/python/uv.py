"""Runs of uv, the resolver of the Python half, with the same indexes, certificates and proxy as all downloads."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from envbuild.core.errors import FREE_SOME, ConflictError, EngineError, EnvbuildError, InputError, SpecError
from envbuild.core.programs import TimeoutExpired, run_program
from envbuild.lock.missing_inputs import InvalidInputError
from envbuild.lock.python.index_logins import IndexLogins
from envbuild.lock.python.pins import Pin, parse_pins
from envbuild.lock.python.uv_inputs import (
    PROJECT,
    no_dependencies_config,
    pyproject_text,
    requirement_lines,
    write_dummy_wheel,
)
from envbuild.lock.python.vendor_index import VendorIndex
from envbuild.net.hidden_logins import hide_logins
from envbuild.net.limits import LIMITS
from envbuild.net.site import Site, mirror_line, mirrors_setting
from envbuild.net.urls import redact, redact_text
from envbuild.net.uv_program import clean_environment, uv_binary

URL_REQUIREMENT = re.compile(r"Package `([^`]+)` was included as a URL dependency")
TOO_LARGE = "(os error 27)"  # EFBIG: it reached `program_file`
OUT_OF_MEMORY = "memory allocation of"  # the message of Rust's runtime when an allocation fails
CONTENT = re.compile(r" \(actual: 0x[0-9a-f]+, expected: 0x[0-9a-f]+\)")  # of a file that an index names as a wheel
UNFIT = "no wheels with a matching"  # uv's message for a version whose files are for other platforms


def site_arguments(
    site: Site, logins: IndexLogins, *, turned: bool = False, links: Sequence[str] = (), pool: bool = False
) -> list[str]:
    """Return uv's options for the site's indexes, in their order. `turned`: in reverse order; `links`: more places with
    files; `logins` gets the passwords; `pool`: all indexes are one, also those of a site.
    """
    python = site.python()
    indexes = python.indexes[::-1] if turned else python.indexes
    strategy = "unsafe-best-match" if pool or python.pool else "first-index"
    arguments = ["--no-config", "--index-strategy", strategy]
    if not indexes:
        arguments.append("--no-index")
    for number, index in enumerate(indexes):  # the default index comes after all others
        option = "--index" if index != indexes[-1] else "--default-index"
        arguments += [option, logins.option(f"site-{number}", index)]
    arguments += logins.links([*python.links, *links])
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
class Uv:
    """uv for one Python version and platform. `workdir` is a private folder, `cache` uv's cache; the packages that
    `vendors` name come from their indexes only."""

    site: Site
    python: str  # 3.13 or 3.13.5
    platform: str  # x86_64-manylinux_2_40
    workdir: Path
    cache: Path
    vendors: tuple[VendorIndex, ...] = ()

    def run(
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
        bounds.write_text(requirement_lines(constraints))
        # uv takes the pins of an existing output file as preferences.
        output.write_text(requirement_lines([f"{name}=={version}" for name, version in sorted(prefer.items())]))
        logins = IndexLogins(self.site.network())
        pages = [vendor.place for vendor in self.vendors if pool and "://" not in vendor.place]
        links = [*pages, *([str(folder)] if omit else [])]
        command = [uv_binary(), "pip", "compile", "--quiet"]
        command += site_arguments(self.site, logins, turned=turned, links=links, pool=pool)
        command += ["--python", sys.executable, "--python-version", self.python, "--python-platform", self.platform]
        command += ["--generate-hashes", "--no-build", "--no-header", "--cache-dir", str(self.cache)]
        command += ["--annotation-style", "line"]
        command += ["--constraints", bounds.name, "--output-file", output.name]
        if self.vendors:
            source = folder / "pyproject.toml"
            source.write_text(pyproject_text(what, requirements, self.vendors, omit, logins))
            if "--no-index" in command:  # which would close the vendors' indexes too
                (folder / "none").mkdir(exist_ok=True)
                command[command.index("--no-index") : command.index("--no-index") + 1] = [
                    "--default-index",
                    (folder / "none").as_uri(),
                ]
            for number, vendor in enumerate(self.vendors if pool else ()):
                if "://" in vendor.place:
                    command += ["--index", logins.option(f"pool-{number}", vendor.place)]
        else:
            source = folder / "requirements.in"
            source.write_text(requirement_lines(requirements))
        for name, version in omit.items():
            write_dummy_wheel(folder, name, version)
            command += ["--no-emit-package", name]
        if omit:
            # An index may have the same version too, with a wheel that fits better: its dependencies must not be
            # used.
            (folder / "uv.toml").write_text(no_dependencies_config(omit))
            command[command.index("--no-config") : command.index("--no-config") + 1] = ["--config-file", "uv.toml"]
        try:
            done = run_program(
                [*command, source.name],
                cwd=folder,
                env=site_environment(self.site) | logins.environment,
                text=True,
                timeout=LIMITS.program,
                memory=LIMITS.program_memory,
                largest=LIMITS.program_file,  # a wheel whose metadata cannot be read by ranges is downloaded
            )
        except TimeoutExpired:
            raise _resolution_error(what, f"uv did not end within {LIMITS.program:.0f} seconds") from None
        if done.returncode and OUT_OF_MEMORY in done.stderr:
            limit = LIMITS.program_memory >> 30
            raise _resolution_error(what, f"uv needed over {limit} GiB of memory: a page is endless")
        if done.returncode and TOO_LARGE in done.stderr:
            limit = LIMITS.program_file >> 30
            raise _resolution_error(what, f"uv wrote a file of over {limit} GiB: a wheel is endless")
        # uv 0.13 uses a preferred version from the first index that has it, maybe for other platforms only.
        known = self.site.python()
        if done.returncode and UNFIT in done.stderr and not turned and known.pool and len(known.indexes) > 1:
            with suppress(EnvbuildError):
                return self.run(what, requirements, constraints, prefer, omit, pool=pool, turned=True)
        if done.returncode:
            places = (*known.indexes, *known.links, *(vendor.place for vendor in self.vendors), self.site.proxy)
            text = hide_logins(done.stderr, places)
            raise _resolution_error(what, text.replace(f"{PROJECT.format(what)} depends on", "you require"))
        return parse_pins(output.read_text())


def _resolution_error(what: str, stderr: str) -> EnvbuildError:
    """Return uv's message as the error of the matching type."""
    lines = redact_text(CONTENT.sub("", stderr)).strip().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("warning:")).strip()
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
    if url := URL_REQUIREMENT.search(text):
        return _url_requirement_error(what, text, url[1])
    if "No solution found" in text:
        return ConflictError(message, "loosen one of the named versions in the spec")
    line = mirror_line("python:", "ADDRESS")
    hint = f"check the network, or configure another index in site.yaml:  {mirrors_setting(line)}"
    return InputError(message, hint, mirror_lines=(line,))


def _url_requirement_error(what: str, text: str, name: str) -> ConflictError:
    """Return the error for a package whose metadata requires the package `name` from an address."""
    user = re.search(r"resolve dependencies for (?:package )?`([^`]+)`", text)
    address = re.search(r"Consider adding `[^`@]+@ ([^`]+)`", text)
    owner = user[1].replace("==", " ") if user else "a package"
    place = f" from the address {redact(address[1])}" if address else " from an address"
    return ConflictError(
        f"the Python packages of '{what}' cannot be locked: {owner} requires {name}{place}, and a lock holds packages "
        "of an index",
        hint=f"name a version of {owner.partition(' ')[0]} without that requirement, or leave out what requires it; a "
        f"recipe with wheel=True can compile {name} from a source",
    )
