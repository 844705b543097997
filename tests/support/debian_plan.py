"""The plan of a real Debian image from a folder of packages; also run by another user's Python, which has no pytest."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from envbuild.build.plan.units import Blob, Input, Plan, Unit
from envbuild.build.steps import Step
from envbuild.core.store.store import Store
from envbuild.oci.config import ImageConfig
from tests.support import tiny_root as kit

EPOCH = 1_790_000_000  # later than every package of the test
AWKWARD = ("systemd", "dbus", "openssh-server", "cron", "sudo", "python3-minimal", "man-db", "fontconfig")


def fill(root: Path, packages: Path) -> Store:
    """Return a store with the packages as blobs."""
    store = Store.open(root)
    for path in (packages / "cache/archives").glob("*.deb"):
        kit.add(store, path.name, path.read_bytes())
    return store


def debian(store: Store, packages: Path) -> Plan:
    """Return the plan of the base, as the planner makes it, and a unit on top of it."""

    def debs(name: str) -> Input:
        blobs = []
        for file in (packages / name).read_text().splitlines():
            content = (packages / "cache/archives" / file).read_bytes()
            blobs.append(Blob(file, hashlib.sha256(content).hexdigest(), len(content)))
        return Input("debs", "debian", tuple(blobs))

    seed = tuple((packages / "essential").read_text().splitlines())
    install = "apt-get update && apt-get install -y --no-install-recommends"
    steps = (
        Step("touch /var/lib/dpkg/status /var/lib/dpkg/available"),
        Step("cd /run/envbuild/debs && dpkg --force-depends --install " + " ".join(seed)),
        Step(f"{install} apt"),
    )
    base = Unit("base", "Debian", steps, inputs=(debs("base"),), seed=seed, epoch=EPOCH)
    packages_unit = Unit(
        "debian", "awkward", (Step(f"{install} {' '.join(AWKWARD)}"),), ("base",), (debs("awkward"),), epoch=EPOCH
    )
    return Plan("debian", (base, packages_unit), ImageConfig(), EPOCH)


if __name__ == "__main__":
    folder, debs = map(Path, sys.argv[1:])
    store = fill(folder, debs)
    result = kit.Embedded(packs=()).build(debian(store, debs), store, kit.SilentReporter(), kit.BuildOptions())
    print(json.dumps([layer.diff_id for layer in result.layers]))
