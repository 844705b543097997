"""The machine as checks see it: its files, below a root, and its programs.

Nothing raises: a file that is missing or may not be read has a fault instead of a text."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from .file_reader import CALLS, FileReader, NoAnswerError
from .processes import LIMIT, Output, Programs, ignore
from .sorting import sorting_key

DEVICES = ("/sys/", "/proc/driver/", "/dev/")  # their files may wait for a device
FOLDERS = (("/sys/bus/", 6), ("/proc/driver/nvidia/gpus/", 6), ("/sys/class/", 5))  # words of a path, to the device
# seconds of a pass: slurmd ends its HealthCheckProgram after 60 (slurm.conf(5)); the longest program here has 30
PASS = 50.0
GRACE = 4.0  # seconds after it for second looks

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
        self.files, self.notice = FileReader(), notice
        self.end = self.programs.end = time.monotonic() + PASS
        self.silent: dict[str, tuple[str, str]] = {}  # devices and folders that did not answer; the call of each
        self.cache: dict[object, object] = {}

    @property
    def is_real(self) -> bool:
        """Return whether the files are those of this machine: otherwise the system is not called."""
        return self.root == Path("/")

    @property
    def is_over(self) -> bool:
        """Return whether the time of this pass is over."""
        return time.monotonic() > self.end

    def once(self, read: Callable[[Host], T]) -> T:
        """Return what a function reads of this machine; several checks need it, and it is read once."""
        if read not in self.cache:
            self.cache[read] = read(self)
        return cast("T", self.cache[read])

    def path(self, path: str) -> Path:
        """Return where a file of the machine is."""
        return self.root / path.lstrip("/")

    def call(self, name: str, path: str) -> Any:
        """Return the result of one of `CALLS` for a path; those of devices in a process of its own. Raises OSError."""
        if not path.startswith(DEVICES):
            return CALLS[name](str(self.path(path)))
        return self.call_bounded(name, path)

    def call_bounded(self, name: str, path: str) -> Any:
        """Return the same, and wait for a limited time. A device that did not answer is not read again. Raises
        OSError."""
        device = device_of(path)
        if device in self.silent or self.is_over:
            raise NoAnswerError("it does not answer")
        try:
            return self.files.call(name, str(self.path(path)))
        except NoAnswerError:
            self.silent[device] = (name, path)
            self.notice(f"{path} does not answer")
            raise

    def answers_now(self, device: str) -> bool:
        """Return whether a device that did not answer does so on a second try: a machine may have been busy."""
        name, path = self.silent[device]
        if time.monotonic() > self.end + GRACE:  # so many that the time is over
            return False
        try:
            self.files.call(name, str(self.path(path)))
        except NoAnswerError:
            return False
        except OSError:  # an answer, too
            return True
        return True

    def close(self) -> None:
        """End the programs whose output was not read, and the process that reads files."""
        self.programs.close()
        self.files.close()

    def read(self, path: str) -> Text:
        """Return the text of a file, without white space around it."""
        try:
            return Text(self.call("read", path).decode("utf-8", "replace").strip())
        except OSError as error:
            missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
            return Text("", "missing" if missing else error.strerror or str(error))

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
            found = self.call("names", path)
        except OSError:
            return []
        return sorted(found, key=sorting_key)

    def has(self, path: str) -> bool:
        """Return whether there is a file."""
        try:
            return bool(self.call("exists", path))
        except OSError:
            return False

    def open_fault(self, path: str) -> str:
        """Return why a device file cannot be opened to read and write, or ""."""
        try:
            self.call("open", path)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def link_name(self, path: str) -> str:
        """Return the last name of the target of a link, or ""."""
        return os.path.basename(self.link_text(path))  # noqa: PTH119

    def link_text(self, path: str) -> str:
        """Return the target of a link, or ""."""
        try:
            return str(self.call("link", path))
        except OSError:
            return ""

    def output(self, *command: str) -> Output:
        """Return what a program printed."""
        return self.programs.output(*command)


def device_of(path: str) -> str:
    """Return the folder of the device to which a file belongs: /sys/class/infiniband/mlx5_3; or the file itself."""
    length = next((number for start, number in FOLDERS if path.startswith(start)), None)
    return "/".join(path.split("/")[:length])
