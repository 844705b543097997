"""The machine as checks see it: its files, below a root, and its programs.

Nothing raises: a file that is missing or may not be read has a fault instead of a text."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

from .processes import LIMIT, Output, Programs, ignore

PCI = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")  # domain, bus, device, function
MAX_TEXT = 1 << 20  # bytes of a file

T = TypeVar("T")


class Text(NamedTuple):
    """The content of a file. `fault`: why it was not read ("" if it was): "missing", or the error of the system."""

    text: str = ""
    fault: str = ""

    @property
    def missing(self) -> bool:
        return self.fault == "missing"


class Host:
    """A machine. `root`: its "/", or the folder with a copy of its files. `notice` receives a line about a program
    that takes long."""

    def __init__(
        self,
        root: str = "/",
        environ: Mapping[str, str] | None = None,
        limit: float = LIMIT,
        notice: Callable[[str], object] = ignore,
    ) -> None:
        self.root = Path(root)
        self.environ = dict(os.environ if environ is None else environ)
        self.programs = Programs(self.environ, limit, notice)
        self.cache: dict[object, object] = {}

    @property
    def is_real(self) -> bool:
        """Return whether the files are those of this machine: otherwise the system is not called."""
        return self.root == Path("/")

    def once(self, read: Callable[[Host], T]) -> T:
        """Return what a function reads of this machine; several checks need it, and it is read once."""
        if read not in self.cache:
            self.cache[read] = read(self)
        return cast("T", self.cache[read])

    def path(self, path: str) -> Path:
        """Return where a file of the machine is."""
        return self.root / path.lstrip("/")

    def read(self, path: str) -> Text:
        """Return the text of a file, without white space around it."""
        try:
            with self.path(path).open("rb") as file:
                return Text(file.read(MAX_TEXT).decode("utf-8", "replace").strip())
        except OSError as error:
            missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
            return Text("", "missing" if missing else os.strerror(error.errno or 0))

    def text(self, path: str) -> str:
        """Return the text of a file; "" if it is missing or cannot be read."""
        return self.read(path).text

    def number(self, path: str) -> int | None:
        """Return the number at the start of a file, or None."""
        word = self.text(path).partition(" ")[0]
        try:
            return int(word, 16 if word.startswith("0x") else 10)
        except ValueError:
            return None

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted with numbers by value; none if it is missing. Numbers of the PCI bus are
        hexadecimal: its devices are in the order of their text, which is that of nvidia-smi."""
        try:
            found = [entry.name for entry in self.path(path).iterdir()]
        except OSError:
            return []
        return sorted(found, key=sorting_key)

    def has(self, path: str) -> bool:
        """Return whether there is a file."""
        return os.path.exists(self.path(path))  # noqa: PTH110 - Path.exists raises for a folder that is closed here

    def open_fault(self, path: str) -> str:
        """Return why a device file cannot be opened to read and write, or ""."""
        try:
            os.close(os.open(self.path(path), os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            return os.strerror(error.errno or 0)
        return ""

    def link_name(self, path: str) -> str:
        """Return the last name of the target of a link, or ""."""
        try:
            return os.path.basename(os.readlink(self.path(path)))  # noqa: PTH115, PTH119
        except OSError:
            return ""

    def output(self, *command: str) -> Output:
        """Return what a program printed."""
        return self.programs.output(*command)


def sorting_key(name: str) -> list[int | str]:
    """Return the parts of a name by which it is sorted, the first one a text."""
    if PCI.fullmatch(name):
        return [name.lower()]
    return [int(part) if part.isdecimal() else part for part in split_digits(name)]


def split_digits(name: str) -> list[str]:
    """Return a name in pieces that are all digits or have none, beginning with one that has none."""
    pieces = [""]
    for sign in name:
        digit = sign.isdecimal()
        if digit != (len(pieces) % 2 == 0):
            pieces.append("")
        pieces[-1] += sign
    return pieces
