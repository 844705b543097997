"""The lock file ``images/NAME.lock``: readable, sorted, stable, without a host name."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from envbuild.core.distributions import MACHINES
from envbuild.core.errors import EngineError, LockError
from envbuild.core.plain_yaml import MAX_BYTES, load_plain
from envbuild.core.regular_file import read_bounded
from envbuild.core.store.json_files import new_file_mode
from envbuild.core.store.store import write_atomic
from envbuild.core.text import amount, first_hidden
from envbuild.core.yaml_reader import short
from envbuild.lock.entry_grammar import check_name, check_origin, check_path, check_submodule
from envbuild.lock.hidden_text import find_hidden
from envbuild.lock.lock_head import read_text, read_texts
from envbuild.lock.model import BaseImage, DebianFile, Lock, PythonFile, SourceFile, UnitLock, VenvRule
from envbuild.lock.unit_names import TOOLS
from envbuild.net.origin_kinds import SIGNED_KINDS
from envbuild.oci.config import parse_rfc3339
from envbuild.oci.manifest import FOREIGN
from envbuild.spec.local_wheels import ORIGIN
from envbuild.spec.project import is_valid_name

SHA256 = re.compile(r"[0-9a-f]{64}")
# Times up to the year 2999: a later one overflows where days are added to it.
END_OF_TIME = 32_503_680_000  # seconds since 1970
RELEASE_DATE = re.compile(r"[12]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
LARGEST = 1 << 60  # bytes, beyond any file
SCHEMA = 1
TOOL_NAMES = ("envbuild", "uv")  # of each lock
INDEX_KINDS = ("python", "pip")  # origins of wheels and sdists
VALUE_TYPES: dict[str, type] = {
    "size": int,
    "git": bool,
    "submodules": dict,
}  # of an entry's values; the others are texts
TYPE_NAMES = {int: "a number", bool: "true or false", dict: "keys with values", str: "text"}
TABLES = (("debian", "debian", DebianFile), ("python_files", "python", PythonFile), ("sources", "source", SourceFile))
OPTIONAL = ("origin", "git", "submodules")  # keys of entries that are left out when they are empty
UNIT_FIELDS = tuple(field.name for field in dataclasses.fields(UnitLock))
HEADER = """\
# Lock of the image {image}: every input by its digest. Written by envbuild; keep it beside the spec and do not edit it.
#   envbuild lock {image}                  after the spec changed
#   envbuild lock {image} --upgrade NAME   for a newer version of one package
"""


def write_lock(lock: Lock, path: Path) -> None:
    """Write `lock` to `path`, whole or not at all. The same lock has the same bytes.

    Raises LockError for a value of an archive, an index or a base image that `read_lock` would refuse, EngineError if
    the file cannot be written."""
    value = _lock_value(lock)
    try:
        if fault := find_hidden(value):
            raise ValueError(fault)
        _parse_value(value)
    except ValueError as error:
        hint = "an archive, an index or the base image has that value: use another version, or another place of it"
        raise LockError(str(error), hint, str(path)) from None
    content = dump_lock(lock).encode()
    try:
        write_atomic(path, lambda file: file.write(content), new_file_mode())
    except OSError as error:
        hint = f"{amount(len(content))} must be free in {path.parent.absolute()}, and you must be able to write there"
        raise EngineError(f"the lock cannot be written: {error.strerror}", hint, str(path)) from error


def dump_lock(lock: Lock) -> str:
    """Return the text of a lock file."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    value = _lock_value(lock)
    options: dict[str, Any] = {"Dumper": dumper, "sort_keys": False, "default_flow_style": False, "width": 1 << 20}
    body = str(yaml.dump(value, allow_unicode=True, **options))
    if any(first_hidden(line) for line in body.split("\n")):  # in a variable of the base image: written as an escape
        body = str(yaml.dump(value, allow_unicode=False, **options))
    return HEADER.format(image=lock.image) + body


def _lock_value(lock: Lock) -> dict[str, Any]:
    value: dict[str, Any] = {"schema": SCHEMA}
    value |= {
        name: getattr(lock, name) for name in ("image", "inputs", "base", "distribution", "arch", "python", "epoch")
    }
    value |= {
        "tools": _sorted(lock.tools),
        "versions": _sorted(lock.versions),
        "chosen": _sorted(lock.chosen),
        "settled": _sorted(lock.settled),
        "waivers": [_sorted(item) for item in lock.waivers],
        "facts": sorted(lock.facts),
    }
    value["units"] = {
        name: {key: list(names) for key in UNIT_FIELDS if (names := getattr(unit, key))}
        for name, unit in lock.units.items()
    }
    for table, _, _ in TABLES:
        value[table] = {
            file: {
                key: item
                for key, item in dataclasses.asdict(entry).items()
                if key != "file" and (item or key not in OPTIONAL)
            }
            for file, entry in sorted(getattr(lock, table).items())
        }
    if lock.base_image:
        value["base_image"] = {
            **dataclasses.asdict(lock.base_image),
            "layers": [[*part] for part in lock.base_image.layers],
            "venv": str(lock.base_image.venv),
        }
        if not lock.base_image.venv:  # a field that came later: the digest of other locks does not change
            del value["base_image"]["venv"]
    if lock.releases:
        value["releases"] = _sorted(lock.releases)
    return value


def read_lock(path: Path) -> Lock:
    """Return the lock in `path`. Raises LockError if there is none, or it is damaged or of another format."""
    try:
        text = read_bounded(path, MAX_BYTES).decode().replace("\r\n", "\n")
    except FileNotFoundError:
        raise LockError("there is no lock", hint=f"envbuild lock {path.stem}", where=str(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise LockError(
            f"the lock cannot be read: {error}", hint=f"envbuild lock {path.stem}", where=str(path)
        ) from None
    return parse_lock(text, path)


def read_lock_of(name: str, path: Path) -> Lock:
    """Return the lock in `path` if it is that of the image `name`. Raises LockError."""
    lock = read_lock(path)
    if lock.image != name:
        hint = f"restore it from version control, or make it again: envbuild lock {name}"
        raise LockError(f"the lock belongs to another image, {lock.image}", hint, str(path))
    return lock


def parse_lock(text: str, path: Path) -> Lock:
    """Return the lock in `text`; `path` is its name in messages. Raises LockError."""
    import yaml

    try:
        value = load_plain(text)
        if not isinstance(value, dict) or "schema" not in value:
            raise ValueError("it has no schema")
        if value["schema"] != SCHEMA:
            raise ValueError(f"it has format {value['schema']}, and this envbuild reads format {SCHEMA}")
        if fault := find_hidden(value):
            raise ValueError(fault)
        return _parse_value(value)
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        reason = getattr(error, "problem", None) or error
        hint = f"restore it from version control, or make it again: envbuild lock {path.stem}"
        raise LockError(f"the lock is damaged: {reason}", hint, where) from None
    except KeyError as error:
        hint = f"restore it from version control, or make it again: envbuild lock {path.stem}"
        raise LockError(f"the lock is damaged: {error} is missing", hint, str(path)) from None


def _parse_value(value: Mapping[str, Any]) -> Lock:
    tables: dict[str, Any] = {}
    for table, kind, shape in TABLES:
        expected = {field.name: VALUE_TYPES.get(field.name, str) for field in dataclasses.fields(shape)}
        tables[table] = {file: _parse_entry(shape, kind, file, entry, expected) for file, entry in value[table].items()}
    units = {
        name: UnitLock(
            **{key: tuple(read_text(item, f"units.{name}.{key}") for item in items) for key, items in unit.items()}
        )
        for name, unit in value["units"].items()
    }
    lock = Lock(
        image=read_text(value["image"], "image"),
        inputs=read_text(value["inputs"], "inputs"),
        base=read_text(value["base"], "base"),
        arch=read_text(value["arch"], "arch"),
        python=read_text(value["python"], "python"),
        epoch=value["epoch"],
        tools=read_texts(value["tools"], "tools"),
        versions=read_texts(value["versions"], "versions"),
        debian=tables["debian"],
        python_files=tables["python_files"],
        sources=tables["sources"],
        units=units,
        waivers=tuple(read_texts(item, "waivers") for item in value["waivers"]),
        chosen=read_texts(value.get("chosen", {}), "chosen"),
        settled=read_texts(value.get("settled", {}), "settled"),
        facts=tuple(read_text(item, "facts") for item in value.get("facts", [])),
        distribution=read_text(value.get("distribution", ""), "distribution"),
        base_image=_parse_base_image(value["base_image"]) if "base_image" in value else None,
        releases=read_texts(value.get("releases", {}), "releases"),
    )
    if not is_valid_name(lock.image):
        raise ValueError(f"{short(lock.image)!r} cannot be the name of an image")
    for tool in TOOL_NAMES:
        check_name(tool, lock.tools[tool])
    if lock.arch not in MACHINES:
        raise ValueError(f"arch is none of {', '.join(MACHINES)}")
    if not isinstance(lock.epoch, int) or isinstance(lock.epoch, bool):
        raise ValueError("epoch is not a number")
    if not 0 <= lock.epoch < END_OF_TIME:
        raise ValueError("epoch is not a time between 1970 and 2999")
    for archive, date in lock.releases.items():
        if not RELEASE_DATE.fullmatch(date) or not parse_rfc3339(date):
            raise ValueError(f"releases: the date of {archive} is not a time after 1970, as in 2026-11-23T14:00:00Z")
    for name, unit in units.items():
        for files, names in (
            (lock.debian, (*unit.debian, *unit.essential)),
            (lock.python_files, (*unit.python, *unit.sdists)),
            (lock.sources, unit.sources),
        ):
            for file in names:
                if file not in files:
                    raise ValueError(f"unit '{name}' names {file}, which is not listed")
    if TOOLS in units:
        _check_tools(lock, units[TOOLS])
    return lock


def _check_tools(lock: Lock, unit: UnitLock) -> None:
    """Raise ValueError if the tools of a build are not the wheel of uv alone, which is unpacked outside of the box."""
    files = [lock.python_files[file] for file in unit.python]
    wanted = [("uv", lock.tools["uv"], True)]
    if [(file.name, file.version, file.file.endswith(".whl")) for file in files] != wanted:
        raise ValueError(f"unit '{TOOLS}' is not the wheel of uv {short(lock.tools['uv'])} alone")


def _parse_base_image(value: Mapping[str, Any]) -> BaseImage:
    layers = tuple(
        (read_text(digest, "layers"), _parse_size(size, "a layer of base_image"), read_text(kind, "layers"))
        for digest, size, kind in value["layers"]
    )
    texts = {key: read_text(value[key], key) for key in ("reference", "digest", "config", "distribution")}
    for digest in (texts["digest"], texts["config"], *(layer[0] for layer in layers)):
        if not SHA256.fullmatch(digest):
            raise ValueError("base_image: a digest is not 64 hexadecimal digits")
    for number, (_, _, kind) in enumerate(layers, 1):
        if FOREIGN.search(kind):
            raise ValueError(f"base_image: layer {number} is a foreign layer, which only its publisher may distribute")
    return BaseImage(
        **texts,
        layers=layers,
        python=read_texts(value["python"], "python"),
        env=read_texts(value["env"], "env"),
        venv=VenvRule(value.get("venv", "")),
    )


def _parse_entry(shape: Any, kind: str, file: object, entry: Mapping[str, Any], expected: Mapping[str, type]) -> Any:
    defaults = {
        field.name: VALUE_TYPES.get(field.name, str)() for field in dataclasses.fields(shape) if field.name in OPTIONAL
    }
    if shape is SourceFile:
        del defaults["origin"]  # every source has one
    values = {**defaults, "file": file, **entry}
    for key, wanted in expected.items():
        if type(values[key]) is not wanted:
            raise ValueError(f"{kind} file {file}: '{key}' is not {TYPE_NAMES[wanted]}")
    if "size" in values:
        _parse_size(values["size"], f"{kind} file {file}")
    if not SHA256.fullmatch(values["sha256"]):
        raise ValueError(f"{kind} file {file}: sha256 is not 64 hexadecimal digits")
    if "/" in values["file"] or values["file"] in ("", ".", ".."):
        raise ValueError(f"{kind} file {file!r}: not a file name")
    found = shape(**values)
    _check_form(found)
    return found


def _check_form(entry: DebianFile | PythonFile | SourceFile) -> None:
    """Raise ValueError for an entry whose names, paths or origins have another form (`envbuild.lock.entry_grammar`)."""
    if not isinstance(entry, SourceFile):
        check_name(entry.name, entry.version)
    if isinstance(entry, DebianFile):
        if not entry.file.endswith(".deb"):
            raise ValueError(f"{short(entry.file)!r} is not the file name of a package")
        check_path(entry.path)
        check_origin(entry.archive, kinds=SIGNED_KINDS)  # an origin of git names any host
    elif isinstance(entry, PythonFile) and entry.origin.startswith(ORIGIN):
        _check_local_wheel(entry.file, PurePosixPath(entry.origin.removeprefix(ORIGIN)))
    elif isinstance(entry, SourceFile):
        check_origin(entry.origin, commit=entry.git)
        for path, origin in entry.submodules.items():
            check_submodule(path, origin)
    elif entry.origin:
        check_origin(entry.origin, kinds=INDEX_KINDS)


def _check_local_wheel(file: str, path: PurePosixPath) -> None:
    """Raise ValueError for a wheel of the project that is at another place: a lock of another user would name any file
    of the machine."""
    if path.is_absolute() or path.name != file or path.suffix != ".whl":
        raise ValueError(f"wheel {file}: {short(str(path))} is not its path in a project")


def _parse_size(value: object, of: str) -> int:
    """Return a size in bytes. Raises ValueError."""
    if type(value) is not int or not 0 <= value < LARGEST:
        raise ValueError(f"{of}: the size is not a number of bytes")
    return value


def _sorted(value: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(value.items()))
