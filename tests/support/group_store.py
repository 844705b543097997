"""Builds of a tiny root in a store that several users share; also run by another user's Python, which has no pytest."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from envbuild.build.cache.fill_store import fill_from_caches
from envbuild.build.cache.open_cache import open_caches
from envbuild.build.engines.base import BuildOptions
from envbuild.build.engines.select import load_engine
from envbuild.build.plan.units import Blob, Input, Plan
from envbuild.core.console import SilentReporter
from envbuild.core.errors import EngineError, EnvbuildError
from envbuild.core.store.store import Store
from envbuild.export.options import ExportOptions
from envbuild.export.project_image import write_from_packs
from envbuild.net.site import Site
from envbuild.net.unit_caches import UnitCache
from envbuild.publish.cached_units import send_units
from envbuild.squashfs.pack.format import PackFormat
from envbuild.squashfs.pack.store_packs import pack_layer
from tests.support import tiny_root as kit

SETUID, CAPABLE = "opt/privileged/setuid", "opt/privileged/capable"  # copies of cat
PRIVILEGED = f"""
mkdir /opt/privileged
cp /usr/bin/cat /{SETUID}; chmod 4755 /{SETUID}
cp /usr/bin/cat /{CAPABLE}; setcap cap_dac_override,cap_dac_read_search+ep /{CAPABLE}
"""
# What a unit sees of the layers below it, with the folders that only lead to a file in them.
LOOK = """
for path in /data /data/* /opt /opt/* /opt/things/*; do stat -c '%n %F %a %u %g %Y' $path; done > /seen
cat /data/kept/file /opt/things/hard >> /seen
cp -a /run/envbuild/data/file /input; stat -c '%n %a %u %g %Y' /run/envbuild/data /run/envbuild/data/file >> /seen
"""


def make_plan(store: Store, *, above: bool = False) -> Plan:
    """Return a plan with every kind of entry, setuid programs, and a unit that preserves one folder alone.

    above: add a unit that reads all of them."""
    odd = kit.unit("odd", "chown 1000:1000 /data; chmod 2710 /data", in_image=False)
    kept = kit.unit(
        "kept", "mkdir /data/kept; echo kept > /data/kept/file", lowers=("base", "odd"), keep=("/data/kept",)
    )
    units = [kit.unit("everything", kit.EVERYTHING), kit.unit("privileged", PRIVILEGED), odd, kept]
    if above:
        given = Input("data", "files", (kit.add(store, "file", b"input"),))
        units.append(kit.unit("above", LOOK, lowers=("base", "everything", "privileged", "kept"), inputs=(given,)))
    return kit.plan(store, *units)


def build_image(
    folder: Path, out: Path, *, engine: str = "embedded", above: bool = False, cache: str = "", **options: Any
) -> dict[str, Any]:
    """Build the plan, and write its image to `out`. Return what was built and reused, and the image's sha256.

    cache: folder with units, which are taken from there and sent there."""
    reported: list[str] = []
    store = Store.open(folder, reported.append)
    plan = make_plan(store, above=above)
    chosen = load_engine(engine)
    if not (probe := chosen.probe(store)).ok:
        raise EngineError(f"{probe.step}: {probe.reason}")
    reporter = SilentReporter()
    caches = open_caches(Site(Path("/"), caches=(UnitCache(cache, Path(cache), True),)), reporter) if cache else ()
    options["caches"] = frozenset(item.name for item in caches)
    fill_from_caches(plan, store, caches, reporter, BuildOptions(**options))
    built = chosen.build(plan, store, reporter, BuildOptions(**options))
    records = [record for key in plan.keys().values() if (record := store.unit(key)) and not record.source]
    send_units(records, caches, store, reporter)
    packs = [pack_layer(store, layer, PackFormat()) for layer in built.layers]
    written = write_from_packs(
        packs, plan.config, out, ExportOptions(sha256=True, keep_owners=True), epoch=plan.epoch, evidence={}
    )
    return {
        "built": built.built,
        "reused": built.reused,
        "layers": [[layer.diff_id, layer.size, layer.files, layer.unit] for layer in built.layers],
        "sha256": written.sha256,
        "reported": reported,
        "lines": reporter.lines,
    }


def add_missing(store: Store, name: str, content: bytes, add: Callable[..., Blob] = kit.add) -> Blob:
    """Put content into the store, if it lacks it: the blobs of another user remain, as after a download."""
    sha256 = hashlib.sha256(content).hexdigest()
    return Blob(name, sha256, len(content)) if store.has_blob(sha256) else add(store, name, content)


def main() -> None:
    """Run ``group_store.py STORE FILE [above] [rebuild] [buildah] [cache=DIR]``: build, print the result as JSON."""
    store, out, *options = sys.argv[1:]
    kit.add = add_missing
    engine = "buildah" if "buildah" in options else "embedded"
    flags: dict[str, Any] = {name: name in options for name in ("above", "rebuild")}
    flags["cache"] = next((word.removeprefix("cache=") for word in options if word.startswith("cache=")), "")
    try:
        answer = build_image(Path(store), Path(out), engine=engine, **flags)
    except EnvbuildError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
