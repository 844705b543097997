"""One walk over the image: every file's type, mode and, for ELF files, headers."""

# Strings instead of Path objects: many thousand files, and names that are not UTF-8.
# ruff: noqa: PTH115, PTH116, PTH123

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from . import elf, elf_symbols, fatbin, gnu_notes, x86_isa

SECTIONS = fatbin.SECTIONS | elf_symbols.SECTIONS | x86_isa.SECTIONS
# The kernel's and the sandbox's own folders, and names of files that are not ELF, which need not be opened.
SKIP = ("/proc", "/sys", "/dev", "/run")
TEXT = re.compile(
    r"(?s:.*)\.(py|pyi|pyc|pyx|pxd|typed|h|hpp|hxx|cuh|c|cc|cpp|cu|inc|inl|tcc|pl|pm|sh|cmake|pc|a|la|txt|md|rst|html|css|js|json"
    r"|yaml|yml|toml|csv|npy|npz|gz|xz|zip|png|svg|ttf|pem|crt|mo|po|pod|list|md5sums)"
)

HOST_KEYS = "/etc/ssh/ssh_host_*"
# What differs between two builds of the same inputs, or belongs to one machine; units remove it.
LEFTOVERS = (
    "/var/cache/ldconfig/aux-cache",
    "/var/cache/debconf/*-old",
    "/var/lib/dpkg/*-old",
    "/var/lib/apt/lists/*Packages*",
    "/var/lib/apt/lists/*Release*",
    "/var/cache/apt/*.bin",
    "/var/cache/apt/archives/*.deb",
    *(f"/etc/{name}-" for name in ("passwd", "group", "shadow", "gshadow", "subuid", "subgid")),
    "/var/log/*.log",
    "/var/log/apt/*",
    "/root/.cache/*",
    "/tmp/*",
    "/var/tmp/*",
)
CLEANED = ("/etc/", "/root/", "/tmp/", "/var/")  # where those are


@dataclass
class ImageFiles:
    """Result of the walk; all lists contain absolute paths. `inodes` distinguishes names of one file from copies of it.
    `levels`: file → the CPU level that its own note requires."""

    elves: dict[str, elf.Elf] = field(default_factory=dict)
    cuda: dict[str, dict[str, int]] = field(default_factory=dict)
    levels: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    inodes: dict[str, tuple[int, int]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    pyc: list[str] = field(default_factory=list)
    setuid: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    open_folders: list[str] = field(default_factory=list)
    host_keys: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    other_mounts: list[str] = field(default_factory=list)
    files: int = 0


def walk_image(root: str = "/", skip: Sequence[str] = SKIP) -> ImageFiles:
    """Walk `root` without following links or entering other mounts."""
    tree = ImageFiles()
    for path, status in walk_entries(root, frozenset(skip), tree):
        kind, mode = stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)
        if kind == stat.S_IFLNK:
            tree.links[path] = os.readlink(path)
        elif kind == stat.S_IFDIR:
            if mode & stat.S_IWOTH:
                tree.open_folders.append(f"{path} {mode:04o}")
        elif kind in (stat.S_IFCHR, stat.S_IFBLK):
            tree.devices.append(path)
        elif kind == stat.S_IFREG:
            tree.files += 1
            if mode & (stat.S_ISUID | stat.S_ISGID):
                tree.setuid.append(f"{path} {mode:04o}")
            if path.endswith(".pyc"):
                tree.pyc.append(path)
            elif status.st_size >= 52 and not TEXT.fullmatch(path):
                _headers(path, status, tree)
        if kind != stat.S_IFDIR:
            if fnmatch.fnmatchcase(path, HOST_KEYS):
                tree.host_keys.append(path)
            elif path.startswith(CLEANED) and any(fnmatch.fnmatchcase(path, rule) for rule in LEFTOVERS):
                tree.leftovers.append(path)
    return tree


def walk_entries(root: str, skip: frozenset[str], tree: ImageFiles) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every entry below `root` with its own status, folders by name."""
    device = os.stat(root).st_dev
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            tree.damaged[folder] = elf.describe_damage(error)
            continue
        for entry in found:
            if entry.path in skip:
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError as error:
                tree.damaged[entry.path] = elf.describe_damage(error)
                continue
            yield entry.path, status
            if stat.S_ISDIR(status.st_mode):
                # on overlayfs folders have the device number of the overlay, so another number is another mount
                if status.st_dev == device:
                    waiting.append(entry.path)
                else:
                    tree.other_mounts.append(entry.path)


def _headers(path: str, status: os.stat_result, tree: ImageFiles) -> None:
    try:
        with open(path, "rb") as file:
            if file.read(4) != elf.MAGIC:
                return
            with elf.map_file(file.fileno()) as data:
                found = elf.parse(data, SECTIONS)
                cuda = fatbin.count_architectures(data, found.sections)
                level = gnu_notes.read_level(data, found)
    except (OSError, ValueError) as error:
        tree.damaged[path] = elf.describe_damage(error)
        return
    tree.elves[path] = found
    tree.sizes[path] = status.st_size
    tree.inodes[path] = (status.st_dev, status.st_ino)
    if cuda:
        tree.cuda[path] = cuda
    if level:
        tree.levels[path] = level
