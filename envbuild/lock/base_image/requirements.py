"""What a base image must be and have, asked of its tree (`envbuild.lock.base_image.file_tree`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from packaging.utils import canonicalize_name

from envbuild.core.distributions import DISTRIBUTIONS
from envbuild.core.distributions import distribution as known_distribution
from envbuild.core.errors import Finding
from envbuild.lock.base_image.file_tree import ImageTree

STATUS = "/var/lib/dpkg/status"
PROGRAMS = ("/bin/sh", "/usr/bin/dpkg", "/usr/bin/apt-get")  # what every unit on top of the base runs
BINS = ("/usr/local/bin", "/usr/bin")  # in the order of PATH
OTHERS = "/opt/*/bin"  # where images have a Python that nothing finds without its own PATH
APT_ONLY = "choose an image with apt: not a distroless, Alpine or RPM one"


def check_base(
    tree: ImageTree,
    reference: str,
    distribution: str,
    python: str,
    promised: Iterable[tuple[str, str]],
    where: Mapping[str, str],
) -> list[Finding]:
    """Everything that the image is not or has not; see `envbuild.lock.base_image.lock_base.lock_base`."""
    found = [*_distribution(tree, reference, distribution), *_programs(tree, reference)]
    if not find_interpreter(tree, python):
        found.append(_no_python(tree, reference, python))
    lacks: dict[str, list[str]] = {}
    for recipe, pattern in promised:
        if not tree.matches(pattern):
            lacks.setdefault(recipe, []).append(pattern)
    for recipe, patterns in lacks.items():
        because = f"because {reference}, from which it takes its component, holds no {', no '.join(patterns)}"
        hint = f"give '{recipe}' another provider, or choose a base that holds it"
        found.append(Finding(f"layer '{recipe}' cannot stand in this image, {because}", where.get(recipe, ""), hint))
    return found


def find_interpreter(tree: ImageTree, python: str) -> str:
    """The path of python<python>, the first on PATH; empty when there is none."""
    for folder in BINS:
        for name in (f"python{python}", "python3", "python"):
            found = tree.find(f"{folder}/{name}")
            if found and found[0].rpartition("/")[2] == f"python{python}":
                return f"{folder}/{name}"
    return ""


def python_packages(tree: ImageTree, interpreter: str, python: str) -> dict[str, str]:
    """Name → version of what an interpreter finds, in the order of its sys.path: the first of a name is the one."""
    local = f"/usr/local/lib/python{python}"
    folders = [f"{local}/site-packages"]
    if interpreter.startswith("/usr/bin/"):  # Debian's own, which looks elsewhere (site.py of its packages)
        folders = [f"{local}/dist-packages", "/usr/lib/python3/dist-packages", f"/usr/lib/python{python}/dist-packages"]
    found: dict[str, str] = {}
    for folder in folders:
        for entry in tree.listing(folder):
            if entry.endswith((".dist-info", ".egg-info")):
                name, version = _package(tree, f"{folder}/{entry}")
                if name and version:
                    found.setdefault(str(canonicalize_name(name)), version)
    return dict(sorted(found.items()))


def _package(tree: ImageTree, path: str) -> tuple[str, str]:
    """Name and version of an installed distribution (core metadata specification); from its folder's name where it has
    no metadata."""
    text = tree.text(f"{path}/METADATA") or tree.text(f"{path}/PKG-INFO") or tree.text(path) or ""
    head = dict(re.findall(r"^(Name|Version): *(\S+)", text.partition("\n\n")[0], re.MULTILINE))
    name, _, rest = path.rpartition("/")[2].rpartition(".")[0].partition("-")
    return head.get("Name", name), head.get("Version", re.sub(r"-py\d.*", "", rest))


def _distribution(tree: ImageTree, reference: str, wanted: str) -> list[Finding]:
    """os-release(5) against what the spec says."""
    text = tree.text("/etc/os-release") or tree.text("/usr/lib/os-release")
    choose = f"choose an image made of one of: {', '.join(DISTRIBUTIONS)}"
    if text is None:
        return [Finding(f"{reference} does not say what it is made of, because it has no /etc/os-release", hint=choose)]
    values = dict(re.findall(r"""^([A-Z_]+)=["']?(.*?)["']?\s*$""", text, re.MULTILINE))
    release = values.get("VERSION_ID") or values.get("VERSION_CODENAME") or "unknown"
    found = f"{values.get('ID', 'unknown')}:{release}"
    if found == known_distribution(wanted).name:
        return []
    hint = f"write distribution: {found}" if found in DISTRIBUTIONS else choose
    because = f"because its os-release says {found}"
    return [Finding(f"{reference} is not made of {wanted}, as the spec says, {because}", hint=hint)]


def _programs(tree: ImageTree, reference: str) -> list[Finding]:
    """What every unit needs of a base."""
    lacks = [path for path in PROGRAMS if not tree.find(path)]
    if not tree.text(STATUS):
        lacks.insert(0, STATUS)
    if not lacks:
        return []
    return [Finding(f"nothing can be installed on {reference}, because it has no {', '.join(lacks)}", hint=APT_ONLY)]


def _no_python(tree: ImageTree, reference: str, python: str) -> Finding:
    places = [path for folder in (*BINS, OTHERS) for path in tree.matches(f"{folder}/python[23].*")]
    versions = {path: match[1] for path in places if (match := re.search(r"/python(\d\.\d+)$", path))}
    usable = [version for path, version in versions.items() if path.rpartition("/")[0] in BINS]
    has = f"it has {', '.join(versions)}" if versions else "it has no Python"
    hint = f'write python: "{usable[0]}"' if usable else f"choose an image with python{python} in {' or '.join(BINS)}"
    return Finding(f"{reference} has no Python {python}, because {has}", hint=hint)
