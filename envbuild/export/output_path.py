"""The destination of an export: the value of `-o`, as `cp` and `rsync` understand it.

An existing folder, or a name with a slash at its end, receives a file with the image's own name, the same as in the
store. Anything else names the file. An OCI layout is a folder itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from envbuild.core.errors import PublishError, SpecError
from envbuild.core.judged_links import is_folder


@dataclass(frozen=True, slots=True)
class Output:
    """The value of `-o`. `folder`: it was written as a folder, which need not exist."""

    path: Path
    folder: bool = False

    @classmethod
    def of(cls, text: str) -> Output:
        """Return the destination that `text` names.

        Raises SpecError if an image cannot be written to it.
        """
        if not text:
            raise SpecError("-o is empty", hint="name a file, e.g. -o image.sqsh, or leave it out")
        if text == "-":
            raise SpecError(
                "-o - would be stdout, which an image cannot be written to",
                hint="name a file, e.g. -o image.sqsh; then read that",
            )
        return cls(Path(text), text.endswith(("/", "/.")) or text == ".")

    @property
    def into(self) -> bool:
        """True if a file is written into it, under the image's own name."""
        return self.folder or is_folder(self.path)

    def prepare(self, source: str) -> None:
        """Check that a file of the image `source` can be written, and create its folder, before the export starts: an
        image may take minutes.

        Raises SpecError if the destination is not a file or is the image itself, PublishError if its folder cannot be
        created.
        """
        if not self.into:
            check_file(self.path)
        if is_source(self.path / "image.sqsh" if self.into else self.path, source):
            raise SpecError(
                f"-o {self.path} is the image that is to be exported", hint="name another file: -o FILE.sqsh"
            )
        make_folder(self.path, self.path if self.into else self.path.parent)

    def file(self, name: str) -> Path:
        """Return the file to write, of an image whose file is called `name`.

        Raises SpecError if the destination exists and is not a file.
        """
        path = self.path / name if self.into else self.path
        check_file(path)
        return path


def check_file(output: Path) -> None:
    """Raise SpecError if a finished file would replace something else: a folder, a pipe, /dev/null, a terminal."""
    if output.is_dir():
        if not is_folder(output):
            raise SpecError(
                f"-o {output} is another user's link to a folder", hint=f"name another file, or -o {output}/"
            )
        raise SpecError(f"-o {output} is a folder", hint="name a file: -o FILE.sqsh")
    if (output.exists() and not output.is_file()) or output.absolute().parent == Path("/dev"):
        raise SpecError(
            f"-o {output} is not a file, and a squashfs file cannot be written into it",
            hint="name a file, e.g. -o image.sqsh; then read that",
        )


def is_source(output: Path, name: str) -> bool:
    """Return whether `output` is the archive that is exported, or is inside the layout that is exported."""
    from envbuild.oci.sources.open import parse_source, split_path

    place = parse_source(name)
    if place is None or place.kind not in ("archive", "layout"):
        return False
    source, own = split_path(place.rest)[0].resolve(), output.resolve()
    return own == source or (source.is_dir() and source / "blobs" in own.parents) or own == source / "index.json"


def make_folder(output: Path, folder: Path) -> None:
    """Ensure that the `folder` that `output` names exists.

    Raises PublishError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = (
            "a file with its name exists"
            if isinstance(error, (FileExistsError, NotADirectoryError))
            else error.strerror
        )
        raise PublishError(
            f"the folder of -o {output} cannot be created: {why}",
            "name a file in a folder that you can write to: -o FILE",
        ) from None
