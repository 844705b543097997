"""The plan of a root with a Python in /opt/python, and a unit in which `box_program` runs."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

from envbuild.build.plan.units import Input, Unit
from envbuild.core.store.store import Store
from envbuild.core.userns.system_calls import NUMBERS
from tests.support import box_program
from tests.support import tiny_root as kit

LOADED = (
    "import sys; sys.path.insert(0, sys.argv[1]); import box_program\n"
    "print(*[m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)], sep='\\n')"
)
RUN = (
    "export LD_LIBRARY_PATH=/opt/python/lib PYTHONHOME=/opt/python; "
    f"exec /opt/python/bin/python3 -S /opt/python/box_program.py '{json.dumps(NUMBERS[platform.machine()])}'"
)


def python_files() -> dict[str, Path]:
    """Return place → file of this interpreter, and of the modules and shared libraries that `box_program` loads."""
    executable, program = Path(sys.executable).resolve(), Path(box_program.__file__)
    command = [str(executable), "-S", "-B", "-c", LOADED, str(program.parent)]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    library = Path(sysconfig.get_path("stdlib"))
    found = {"bin/python3": executable, "box_program.py": program}
    for path in map(Path, loaded):
        if path.is_relative_to(library):
            found[f"lib/{library.name}/{path.relative_to(library)}"] = path
    for path in [executable, *(path for path in found.values() if path.suffix == ".so")]:
        text = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=False).stdout
        for name in re.findall(r"=> (/\S+)", text):
            if not re.match(r"(libc|ld-linux.*)\.so", Path(name).name):
                found[f"lib/{Path(name).name}"] = Path(name)
    return found


def box_units(store: Store) -> tuple[Unit, Unit]:
    """Return a unit with the interpreter, and one that leaves the program's report in /opt/report."""
    entries = [(kit.entry(f"python/{place}"), path.read_bytes()) for place, path in python_files().items()]
    archive = kit.add(store, "python.tar", kit.tar_bytes(entries, "w"))
    python = kit.unit(
        "python", "mkdir -p /opt; cp -r /run/envbuild/python /opt/", inputs=(Input("python", "tree", (archive,)),)
    )
    return python, kit.unit("box", f"( {RUN} ) > /opt/report", lowers=("base", "python"))


def read_report(store: Store, diff_id: str) -> dict[str, str]:
    """Return what the unit `box` left in its layer."""
    report: dict[str, str] = json.loads((builders_tree(store, diff_id) / "opt/report").read_text())
    return report


def builders_tree(store: Store, diff_id: str) -> Path:
    """Return the tree of a layer that another user may have built: `Store.layer_tree` is this user's own."""
    return store.root / "layers" / diff_id.removeprefix("sha256:") / "tree"
