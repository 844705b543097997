"""Run inside a unit: do its wheels hold the extension modules that the recipe names?

    python modules.py FOLDER MODULE…

A module ``a.b`` is a file ``a/b.<anything>.so`` of some wheel in FOLDER. Ends with 1 and their names when some are
missing. It runs on the image's Python, whatever version that is, and imports nothing of envbuild."""

import pathlib
import sys
import zipfile


def missing(folder: str, modules: "list[str]") -> "list[str]":
    """Those of `modules` that no wheel in `folder` holds."""
    names = [name for wheel in sorted(pathlib.Path(folder).glob("*.whl")) for name in zipfile.ZipFile(wheel).namelist()]
    shared = [name.split(".data/platlib/")[-1].split(".data/purelib/")[-1] for name in names if name.endswith(".so")]
    return [module for module in modules if not any(name.startswith(module.replace(".", "/") + ".") for name in shared)]


if __name__ == "__main__":
    lost = missing(sys.argv[1], sys.argv[2:])
    if lost:
        sys.exit("the build succeeded without these extension modules: " + ", ".join(lost))
