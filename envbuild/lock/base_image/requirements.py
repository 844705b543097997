"""The requirements of a base image, checked in its file tree (`envbuild.lock.base_image.file_tree`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress

from packaging.utils import InvalidName, canonicalize_name

from envbuild.core.distributions import DISTRIBUTIONS
from envbuild.core.distributions import find_distribution as known_distribution
from envbuild.core.errors import Finding
from envbuild.core.yaml_reader import short
from envbuild.lock.base_image.file_tree import ImageTree
from envbuild.lock.deb822 import installed_names
from envbuild.lock.model import VenvRule
from envbuild.spec.recipe import VENV

STATUS = "/var/lib/dpkg/status"
PROGRAMS = ("/bin/sh", "/usr/bin/dpkg", "/usr/bin/apt-get")  # what every unit on top of the base runs
BINS = ("/usr/local/bin", "/usr/bin")  # in the order of PATH
OTHERS = "/opt/*/bin"  # where images have a Python that is not on the default PATH
CONFIG = f"{VENV}/pyvenv.cfg"
NAME, QUOTED = re.compile(r"[A-Z_]+"), re.compile(r"""["'](.*)["']""")  # a quoted text has two quotes
ACCESS = re.compile(r"^include-system-site-packages\s*=\s*true\s*$", re.MULTILINE | re.IGNORECASE)  # site.py
APT_ONLY = "choose an image with apt: not a distroless, Alpine or RPM one"


def check_base(
    tree: ImageTree,
    reference: str,
    distribution: str,
    python: str,
    promised: Iterable[tuple[str, str]],
    prefixes: Iterable[tuple[str, str]],
    where: Mapping[str, str],
) -> list[Finding]:
    """Return a finding for each requirement that the image does not meet; see
    `envbuild.lock.base_image.lock_base.lock_base`."""
    found = [*_distribution(tree, reference, distribution), *_programs(tree, reference)]
    if not find_interpreter(tree, python):
        found.append(_no_python_finding(tree, reference, python))
    missing: dict[str, list[str]] = {}
    for recipe, pattern in promised:
        if not tree.matches(pattern):
            missing.setdefault(recipe, []).append(pattern)
    for recipe, patterns in missing.items():
        cause = f"it uses the component of {reference}, which has no {', no '.join(patterns)}"
        hint = f"choose another provider of '{recipe}', or a base that contains it"
        found.append(Finding(f"layer '{recipe}' is incompatible with this image: {cause}", where.get(recipe, ""), hint))
    for recipe, prefix in prefixes:
        if tree.find(prefix):
            cause = f"it is compiled into {prefix}, which {reference} has already"
            hint = f"remove layer '{recipe}', or choose another base: files of two builds would be mixed"
            message = f"layer '{recipe}' is incompatible with this image: {cause}"
            found.append(Finding(message, where.get(recipe, ""), hint))
    return found


def find_interpreter(tree: ImageTree, python: str) -> str:
    """Return the path of python<python>, the first on PATH; empty when there is none."""
    for folder in BINS:
        for name in (f"python{python}", "python3", "python"):
            found = tree.find(f"{folder}/{name}")
            if found and found[0].rpartition("/")[2] == f"python{python}":
                return f"{folder}/{name}"
    return ""


def read_venv(tree: ImageTree, python: str) -> VenvRule:
    """Return what becomes of the venv that the image has at the place of envbuild's own."""
    if not tree.find(VENV):
        return VenvRule.NONE
    same = tree.text(CONFIG) and tree.find(f"{VENV}/bin/python") and tree.find(f"{VENV}/lib/python{python}")
    return VenvRule.EXTENDED if same else VenvRule.REPLACED


def python_packages(tree: ImageTree, interpreter: str, python: str, venv: VenvRule) -> dict[str, str]:
    """Return name → version of the packages of an interpreter, in the order of its sys.path: the first of a name is
    imported. Those of an extended venv come first, and are the only ones unless it has access to the others."""
    local, own = f"/usr/local/lib/python{python}", [f"{VENV}/lib/python{python}/site-packages"]
    if venv is VenvRule.EXTENDED and not ACCESS.search(tree.text(CONFIG) or ""):
        return _packages_in(tree, own)
    folders = [f"{local}/site-packages"]
    if interpreter.startswith("/usr/bin/"):  # Debian's own, which has other folders (site.py of its packages)
        folders = [f"{local}/dist-packages", "/usr/lib/python3/dist-packages", f"/usr/lib/python{python}/dist-packages"]
    return _packages_in(tree, [*(own if venv is VenvRule.EXTENDED else []), *folders])


def _packages_in(tree: ImageTree, folders: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for folder in folders:
        for entry in tree.listing(folder):
            if entry.endswith((".dist-info", ".egg-info")):
                name, version = _package(tree, f"{folder}/{entry}")
                with suppress(InvalidName):  # pip ignores it, too; it may be a path
                    known = str(canonicalize_name(name, validate=True))
                    if version:
                        found.setdefault(known, version)
    return dict(sorted(found.items()))


def _package(tree: ImageTree, path: str) -> tuple[str, str]:
    """Return name and version of an installed distribution (core metadata specification); from its folder's name where
    it has no metadata."""
    text = tree.text(f"{path}/METADATA") or tree.text(f"{path}/PKG-INFO") or tree.text(path) or ""
    head = dict(re.findall(r"^(Name|Version): *(\S+)", text.partition("\n\n")[0], re.MULTILINE))
    name, _, rest = path.rpartition("/")[2].rpartition(".")[0].partition("-")
    return head.get("Name", name), head.get("Version", re.sub(r"-py\d.*", "", rest))


def _distribution(tree: ImageTree, reference: str, wanted: str) -> list[Finding]:
    """Compare os-release(5) with the spec."""
    text = tree.text("/etc/os-release") or tree.text("/usr/lib/os-release")
    choose = f"choose an image of one of: {', '.join(DISTRIBUTIONS)}"
    if text is None:
        return [Finding(f"the distribution of {reference} is unknown: it has no /etc/os-release", hint=choose)]
    values = _assignments(text)
    release = values.get("VERSION_ID") or values.get("VERSION_CODENAME") or "unknown"
    found = short(f"{values.get('ID', 'unknown')}:{release}")
    if found == known_distribution(wanted).name:
        return []
    hint = f"write distribution: {found}" if found in DISTRIBUTIONS else choose
    return [Finding(f"{reference} is not {wanted}, as the spec declares: its os-release names {found}", hint=hint)]


def _assignments(text: str) -> dict[str, str]:
    """Return NAME → value of the lines of a file as os-release(5), without their quotes."""
    found = {}
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if equals and NAME.fullmatch(name):
            value = value.rstrip()
            found[name] = quoted[1] if (quoted := QUOTED.fullmatch(value)) else value
    return found


def _programs(tree: ImageTree, reference: str) -> list[Finding]:
    """Check the programs that every unit needs in a base."""
    missing = [path for path in PROGRAMS if not (found := tree.find(path)) or isinstance(found[1], dict)]
    if not (status := tree.text(STATUS)):
        missing.insert(0, STATUS)
    if not missing:
        return _status_findings(status or "", reference)
    return [Finding(f"nothing can be installed on {reference}: it has no {', '.join(missing)}", hint=APT_ONLY)]


def _status_findings(status: str, reference: str) -> list[Finding]:
    """Read the database of installed packages."""
    try:
        installed_names(status)
    except ValueError as error:
        hint = f"dpkg refuses it, too: choose another image, or repair it where {reference} is made"
        return [Finding(f"nothing can be installed on {reference}: {STATUS} is damaged: {error}", hint=hint)]
    return []


def _no_python_finding(tree: ImageTree, reference: str, python: str) -> Finding:
    places = [path for folder in (*BINS, OTHERS) for path in tree.matches(f"{folder}/python[23].*")]
    versions = {path: match[1] for path in places if (match := re.search(r"/python(\d\.\d+)$", path))}
    usable = [version for path, version in versions.items() if path.rpartition("/")[0] in BINS]
    has = f"it has {', '.join(versions)}" if versions else "it has no Python"
    hint = f'write python: "{usable[0]}"' if usable else f"choose an image with python{python} in {' or '.join(BINS)}"
    return Finding(f"{reference} has no Python {python}: {has}", hint=hint)
