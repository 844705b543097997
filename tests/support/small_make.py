"""``make`` of a tiny image, for trials that kill it: what `envbuild.make` does from build to the link, on a plan by
hand.

Run as ``small_make.py STORE``; prints the sha256 of the file."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # as `envbuild.cli.start`, while modules are imported
ROOT = Path(__file__).resolve().parents[2]

from envbuild.build.engines.base import BuildOptions  # noqa: E402
from envbuild.build.engines.embedded.engine import Embedded  # noqa: E402
from envbuild.core import signals  # noqa: E402
from envbuild.core.console import SilentReporter  # noqa: E402
from envbuild.core.store.records import write_record  # noqa: E402
from envbuild.core.store.store import Store  # noqa: E402
from envbuild.core.store.use import in_use  # noqa: E402
from envbuild.export.artifact_link import link_by_name  # noqa: E402
from envbuild.make import build_and_write  # noqa: E402
from tests.support import tiny_root as kit  # noqa: E402
from tests.support.foreign_images import workspace  # noqa: E402
from tests.support.group_store import add_missing  # noqa: E402
from tests.support.ready_image import ready_image  # noqa: E402
from tests.support.stored_inputs import lock  # noqa: E402

# As a compiler that does not end on SIGTERM, with a process that leaves its session.
STUBBORN = "trap '' TERM INT HUP; setsid sh -c \"trap '' TERM; sleep 300\" & "
COMPILE = (
    STUBBORN + "mkdir -p /opt/{0}; for i in 1 2 3; do cp /usr/bin/* /opt/{0}; echo $i > /opt/{0}/$i; sleep 0.1; done"
)


def main() -> None:
    store = Store.open(Path(sys.argv[1]))
    kit.add = add_missing
    with signals.listening(), in_use(store, SilentReporter()):
        at = workspace(store.root)
        one, two = (kit.unit(name, COMPILE.format(name)) for name in ("one", "two"))
        three = kit.unit("three", "cat /opt/one/3 > /opt/three", lowers=("base", "one", "two"))
        plan = kit.plan(store, one, two, three)
        built, artifact = build_and_write(ready_image(Embedded(), plan, lock(), BuildOptions(workers=2)), at)
        link_by_name(artifact.path, plan.image)
        made = {"artifact": str(artifact.path), "sha256": artifact.sha256}
        made |= {"layers": [layer.diff_id for layer in built.layers]}  # type: ignore[dict-item]
        write_record(store.root / "images" / f"{'0' * 64}.json", made, units=plan.keys().values())
    print(artifact.sha256)


if __name__ == "__main__":
    main()
