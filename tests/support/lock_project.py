"""A project as a user has it, with places on this machine for all inputs of its image; locked by the real command."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from envbuild.net.uv_program import uv_version
from tests.support.command import envbuild
from tests.support.debian_archive import RELEASED, Signer, publish, stanza
from tests.support.lock_server import simple_index, wheel

BASE = (stanza("dash", essential=True), stanza("apt"), stanza("ca-certificates"), stanza("python3"))


@dataclass
class LockProject:
    """A project with the image ``k``, its archive and its index in folders beside it.

    `layers` of the image; `mirrors` that are added to its site, or replace those of it; `site` has further lines;
    `recipes`: name → text. `spec` has further keys of its spec.
    """

    folder: Path
    key: Signer
    layers: Mapping[str, object] = field(default_factory=dict)
    mirrors: dict[str, Sequence[str]] = field(default_factory=dict)
    site: Mapping[str, object] = field(default_factory=dict)
    recipes: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, object] = field(default_factory=dict)

    def publish(self, packages: Iterable[str] = (), released: int = RELEASED) -> None:
        """Write the archive of Debian with `packages` beside those that every image has."""
        for suite, stanzas in (("trixie", (*BASE, *packages)), ("trixie-updates", ())):
            publish(self.folder / "debian", suite, stanzas, self.key, released=released)

    def index(self, *wheels: Path) -> None:
        """Write the package index, with the uv that every image is built with."""
        uv = wheel(self.folder / "wheels", "uv", uv_version(), "py3-none-manylinux_2_28_x86_64")
        simple_index(self.folder / "simple", [*wheels, uv])

    def write(self) -> None:
        """Write the image's spec and the site. Their JSON is YAML."""
        project = self.folder / "project"
        (project / "images").mkdir(parents=True, exist_ok=True)
        spec = {"schema": 1, "description": "x", "target": "cpu", "base": "debian:13", "layers": self.layers}
        spec |= self.spec
        (project / "images/k.yaml").write_text(json.dumps(spec))
        places = {"debian": [str(self.folder / "debian")], "python": [(self.folder / "simple").as_uri()]}
        site = {
            "schema": 1,
            "upstream": False,
            "mirrors": {**places, **self.mirrors},
            "keyrings": {"debian": str(self.key.keyring)},
            **self.site,
        }
        (project / "site.yaml").write_text(json.dumps(site))
        (project / "site.yaml").chmod(0o600)  # it may have passwords
        (project / "recipes").mkdir(exist_ok=True)
        for name, text in self.recipes.items():
            (project / f"recipes/{name}.py").write_text(text)
        # The apt configuration of the machine that runs the tests has no effect.
        (self.folder / "apt.conf.d").mkdir(exist_ok=True)
        (self.folder / "apt.conf").write_text(f'Dir::Etc::parts "{self.folder}/apt.conf.d";\n')

    def lock(self, *options: str, store: str = "store") -> subprocess.CompletedProcess[str]:
        """Run ``envbuild lock k`` with a store beside the project."""
        self.write()
        places = {"ENVBUILD_STORE": str(self.folder / store), "APT_CONFIG": str(self.folder / "apt.conf")}
        return envbuild("lock", "k", *options, cwd=self.folder / "project", **places)
